"""The methods that the paper compares itself with, under the same roof: data, first weights, history, checkpoints.

rival      what they share: all layers in one process from the start, scores by a forward pass
gradient   gradient descent, Adadelta, Adagrad and Adam, by torch.optim and autograd
dladmm     deep-learning ADMM, from which the paper's method comes
"""
