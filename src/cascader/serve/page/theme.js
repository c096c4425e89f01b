// Runs before the first paint, so that a chosen theme never flashes in late.
(() => {
  try {
    const chosen = localStorage.getItem("cascader-theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch {
    // Storage may be forbidden: then the machine's theme holds.
  }
})();
