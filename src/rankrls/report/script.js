"use strict";
(() => {
  document.documentElement.classList.add("scripted");
  const PAGE = 25;

  for (const table of document.querySelectorAll("table[data-sortable]")) {
    const body = table.tBodies[0];
    const heads = [...table.tHead.rows[0].cells];
    const rows = [...body.rows].map((row, index) => ({
      row,
      index,
      text: row.cells[0].textContent.toLowerCase(),
    }));
    const box = document.getElementById(table.dataset.search);
    const status = document.getElementById(table.dataset.status);
    const more = document.getElementById(table.dataset.more);
    const all = document.getElementById(table.dataset.all);
    let limit = PAGE;

    const show = () => {
      const wanted = box.value.trim().toLowerCase();
      let found = 0;
      for (const { row, text } of rows) {
        const match = text.includes(wanted);
        if (match) found += 1;
        row.hidden = !match || found > limit;
      }
      const shown = Math.min(found, limit);
      status.textContent = found === 0
        ? "Nothing found."
        : `Showing ${shown.toLocaleString("en")} of ${found.toLocaleString("en")}`
          + (wanted ? " found." : ".");
      more.hidden = all.hidden = shown === found;
    };

    const key = (item, column) => {
      const cell = item.row.cells[column];
      if (cell.dataset.v === undefined) return cell.textContent.trim();
      return cell.dataset.v === "" ? null : Number(cell.dataset.v);
    };

    const sort = (column, descending) => {
      const sign = descending ? -1 : 1;
      const keys = new Map(rows.map((item) => [item, key(item, column)]));
      rows.sort((one, two) => {
        const a = keys.get(one), b = keys.get(two);
        if (a === null || b === null) return (a === null) - (b === null) || one.index - two.index;
        const order = typeof a === "number"
          ? a - b
          : a.localeCompare(b, "en", { numeric: true });
        return sign * order || one.index - two.index;
      });
      heads.forEach((head, k) => {
        if (k === column) head.setAttribute("aria-sort", descending ? "descending" : "ascending");
        else if (head.hasAttribute("aria-sort")) head.setAttribute("aria-sort", "none");
      });
      body.append(...rows.map((item) => item.row));
      show();
    };

    heads.forEach((head, column) => {
      const button = head.querySelector("button");
      if (!button) return;
      button.addEventListener("click", () => {
        const now = head.getAttribute("aria-sort");
        const first = head.dataset.first === "ascending" ? "ascending" : "descending";
        const other = first === "ascending" ? "descending" : "ascending";
        sort(column, (now === first ? other : first) === "descending");
      });
    });
    box.addEventListener("input", () => { limit = PAGE; show(); });
    more.addEventListener("click", () => { limit += 4 * PAGE; show(); });
    all.addEventListener("click", () => { limit = Infinity; show(); });
    show();
  }
})();
