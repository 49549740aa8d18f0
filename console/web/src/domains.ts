// The table of domains: a bar of draw against rating with the cap band and the forecast as marks.

import { kilowatts } from "./format";
import type { Domain } from "./model";

const BAND_WORDS: Record<string, string> = { NORMAL: "calm", RELEASING: "▽ releasing", CAPPING: "▲ capping", BRAKE: "■ brake" };

export function renderDomains(body: HTMLTableSectionElement, domains: Domain[]): void {
  const depth = depths(domains);
  while (body.rows.length > domains.length) body.deleteRow(-1);
  domains.forEach((domain, index) => {
    const row = body.rows[index] ?? body.insertRow();
    row.dataset.band = domain.band;
    const cells = [
      `${"\u2003".repeat(depth.get(domain.name) ?? 0)}${domain.name}`,
      bandOf(domain),
      "",
      kilowatts(domain.draw_watts),
      kilowatts(domain.budget_watts),
      kilowatts(domain.budget_watts - domain.draw_watts),
      domain.survivable_watts === null ? "–" : kilowatts(domain.survivable_watts - domain.worst_watts),
      forecastOf(domain),
      `${(100 * domain.heat).toFixed(1)} %`,
      `${domain.capped_gpus} / ${domain.gpus}${domain.would_be_capped_gpus ? `, ${domain.would_be_capped_gpus} would be` : ""}`,
    ];
    cells.forEach((text, column) => {
      const cell = row.cells[column] ?? row.insertCell();
      if (column === 2) renderBar(cell, domain);
      else if (cell.textContent !== text) cell.textContent = text;
    });
    row.cells[7]!.title = [domain.forecast_reason, leadOf(domain), ...roomsOf(domain)].filter(Boolean).join("\n");
    row.cells[6]!.dataset.low = String(domain.survivable_watts !== null && domain.survivable_watts - domain.worst_watts < 0.01 * domain.rating_watts);
  });
}

function bandOf(domain: Domain): string {
  const words = BAND_WORDS[domain.band] ?? domain.band.toLowerCase();
  return domain.enforcement === "DryRun" ? `${words} (dry run)` : words;
}

function forecastOf(domain: Domain): string {
  const notes: Record<string, string> = { Contradicted: " contradicted", Fallback: " day's peak", NoForecast: " no forecast" };
  return `${kilowatts(domain.forecast_p99_watts)}${notes[domain.forecast_state] ?? ""}`;
}

function renderBar(cell: HTMLTableCellElement, domain: Domain): void {
  if (!cell.firstElementChild) {
    cell.innerHTML = '<div class="bar"><div class="fill"></div><i class="mark cap"></i><i class="mark p99"></i><i class="mark rating"></i></div>';
  }
  const scale = Math.max(domain.rating_watts, domain.draw_watts, domain.forecast_p99_watts ?? 0) * 1.02;
  const bar = cell.firstElementChild as HTMLElement;
  const [fill, cap, p99, rating] = [...bar.children] as [HTMLElement, HTMLElement, HTMLElement, HTMLElement];
  fill.style.width = `${(100 * domain.draw_watts) / scale}%`;
  cap.style.left = `${(100 * domain.cap_band_watts) / scale}%`;
  rating.style.left = `${(100 * domain.rating_watts) / scale}%`;
  p99.hidden = domain.forecast_p99_watts === null || domain.forecast_state !== "Forecast";
  p99.style.left = `${(100 * (domain.forecast_p99_watts ?? 0)) / scale}%`;
  bar.title = `draw ${kilowatts(domain.draw_watts)}, cap band ${kilowatts(domain.cap_band_watts)}, rating ${kilowatts(domain.rating_watts)}`;
}

/** What it may draw until a new replica of what runs below it works; empty where nobody said what runs. */
function leadOf(domain: Domain): string {
  const lead = domain.forecast_lead;
  if (!lead) return "";
  const needed = lead.p99_watts === null ? "" : `: p99 ${kilowatts(lead.p99_watts)}`;
  return `until a new ${lead.workload} works (${Math.round(lead.seconds)} s)${needed}`;
}

/** What may be promised beyond what is, a line a risk. */
function roomsOf(domain: Domain): string[] {
  return (domain.promisable ?? []).map((room) => {
    const whom = room.least_priority === null ? "" : ` to priorities from ${room.least_priority} on`;
    return `${kilowatts(room.watts)} more may be promised${whom}, at a risk of ${Number((100 * room.risk).toPrecision(3))} %`;
  });
}

/** Levels below the root; parents may come in any order, and a circle ends. */
function depths(domains: Domain[]): Map<string, number> {
  const parent = new Map(domains.map((domain) => [domain.name, domain.parent]));
  return new Map(
    domains.map((domain) => {
      let depth = 0;
      for (let at = domain.parent; at !== null && at !== undefined && depth < 16; at = parent.get(at) ?? null) depth++;
      return [domain.name, depth];
    }),
  );
}
