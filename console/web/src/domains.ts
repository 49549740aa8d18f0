// The table of domains: a bar of draw against rating with the cap band and the forecast as marks.

import { type Domain, watts } from "./model";

export function renderDomains(body: HTMLTableSectionElement, domains: Domain[]): void {
  const depth = depths(domains);
  while (body.rows.length > domains.length) body.deleteRow(-1);
  domains.forEach((domain, index) => {
    const row = body.rows[index] ?? body.insertRow();
    row.dataset.band = domain.band;
    const scale = Math.max(domain.rating_watts, domain.draw_watts, domain.forecast_p99_watts ?? 0) * 1.02;
    const cells = [
      `${"\u2003".repeat(depth.get(domain.name) ?? 0)}${domain.name}`,
      "",
      watts(domain.draw_watts),
      watts(domain.budget_watts),
      watts(domain.budget_watts - domain.draw_watts),
      watts(domain.forecast_p99_watts) + (domain.forecast_method.startsWith("fallback") ? " (fallback)" : ""),
      domain.heat.toFixed(3),
      `${domain.capped_gpus} / ${domain.gpus}`,
      domain.enforcement === "DryRun" ? `${domain.band.toLowerCase()} (dry run)` : domain.band.toLowerCase(),
    ];
    cells.forEach((text, column) => {
      const cell = row.cells[column] ?? row.insertCell();
      if (column === 1) renderBar(cell, domain, scale);
      else if (cell.textContent !== text) cell.textContent = text;
    });
  });
}

function renderBar(cell: HTMLTableCellElement, domain: Domain, scale: number): void {
  if (!cell.firstElementChild) {
    cell.innerHTML = '<div class="bar"><div class="fill"></div><i class="mark cap"></i><i class="mark p99"></i><i class="mark rating"></i></div>';
  }
  const bar = cell.firstElementChild as HTMLElement;
  const [fill, cap, p99, rating] = [...bar.children] as [HTMLElement, HTMLElement, HTMLElement, HTMLElement];
  fill.style.width = `${(100 * domain.draw_watts) / scale}%`;
  cap.style.left = `${(100 * domain.cap_band_watts) / scale}%`;
  rating.style.left = `${(100 * domain.rating_watts) / scale}%`;
  p99.hidden = domain.forecast_p99_watts === null;
  p99.style.left = `${(100 * (domain.forecast_p99_watts ?? 0)) / scale}%`;
  bar.title = `draw ${watts(domain.draw_watts)}, cap band ${watts(domain.cap_band_watts)}, rating ${watts(domain.rating_watts)}`;
}

function depths(domains: Domain[]): Map<string, number> {
  const depth = new Map<string, number>();
  for (const domain of domains) depth.set(domain.name, domain.parent === null ? 0 : (depth.get(domain.parent) ?? 0) + 1);
  return depth;
}
