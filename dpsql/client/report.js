// Entries of legends switch what they name; without this script everything is shown.
for (const entry of document.querySelectorAll("[data-part]")) {
  const flip = () => {
    const off = entry.classList.toggle("off");
    entry.setAttribute("aria-pressed", String(!off));
    for (const suffix of ["", "-limit"]) {
      const part = document.getElementById(entry.dataset.part + suffix);
      if (part) part.style.display = off ? "none" : "";
    }
  };
  entry.setAttribute("role", "button");
  entry.setAttribute("tabindex", "0");
  entry.setAttribute("aria-pressed", "true");
  entry.addEventListener("click", flip);
  entry.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); flip(); }
  });
}
