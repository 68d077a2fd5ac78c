"""The door for scikit-learn users: estimators that stand where MLPClassifier and MLPRegressor stood.

`base` has what both share, `classifier` and `regressor` what each adds, `folding` turns a trained model into weights
for the features as they were given, and `cores` divides the machine between joblib's workers and ours.
"""

from pdadmm.estimator.classifier import PdADMMClassifier
from pdadmm.estimator.regressor import PdADMMRegressor

__all__ = ["PdADMMClassifier", "PdADMMRegressor"]
