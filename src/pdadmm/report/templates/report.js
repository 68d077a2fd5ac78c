// Draws each chart when it comes into view, switches runs off and on, sorts tables.
const { specs, data } = JSON.parse(document.getElementById("drawings").textContent);
const options = { ast: true, actions: false, renderer: "svg", logLevel: 1, defaultStyle: false, tooltip: { disableDefaultStyle: true } };
const boxes = [...document.querySelectorAll("[data-label]")];
const views = [];
const hide = (view) => view.signal("hidden", boxes.filter((box) => !box.checked).map((box) => box.dataset.label)).runAsync();
boxes.forEach((box) => box.addEventListener("change", () => views.forEach(hide)));

async function draw(place) {
  const spec = { ...specs[place.dataset.spec], datasets: structuredClone(data[place.dataset.data]) };
  const { view } = await vegaEmbed(place, spec, options);
  if (place.closest(".switched")) { views.push(view); hide(view); }
}
const watch = new IntersectionObserver((entries) => entries.filter((entry) => entry.isIntersecting).forEach(({ target }) => {
  watch.unobserve(target);
  draw(target);
}), { rootMargin: "400px" });
document.querySelectorAll("[data-spec]").forEach((place) => watch.observe(place));

document.querySelectorAll("th button").forEach((button) => button.addEventListener("click", () => {
  const head = button.parentElement, body = head.closest("table").tBodies[0];
  const sign = head.ariaSort === "ascending" ? -1 : 1;
  const key = (row) => row.cells[head.cellIndex].dataset.key ?? row.cells[head.cellIndex].textContent;
  [...head.parentElement.cells].forEach((cell) => { cell.ariaSort = null; });
  head.ariaSort = sign > 0 ? "ascending" : "descending";
  body.append(...[...body.rows].sort((a, b) => sign * key(a).localeCompare(key(b), "en", { numeric: true })));
}));
