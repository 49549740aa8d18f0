// One unit and one clock: kilowatts, and the controller's time in UTC.

export function kilowatts(watts: number | null | undefined): string {
  return watts === null || watts === undefined ? "–" : `${(watts / 1000).toLocaleString("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 })} kW`;
}

/** A value in the unit of its series; power is in the one unit of the page. */
export function quantity(value: number | null | undefined, unit: string): string {
  if (value === null || value === undefined) return "–";
  if (unit === "watts" || unit === "W") return kilowatts(value);
  return `${figure(value)} ${unit}`.trimEnd();
}

/** Three digits are enough to act on; of large figures none is dropped before the point. */
export function figure(value: number): string {
  return Math.abs(value) >= 100 ? Math.round(value).toLocaleString("en") : value.toLocaleString("en", { maximumSignificantDigits: 3 });
}

export function percent(share: number | null | undefined): string {
  return share === null || share === undefined ? "–" : `${(100 * share).toFixed(1)} %`;
}

export function clock(timeMs: number): string {
  return new Date(timeMs).toISOString().slice(11, 19);
}

export function span(seconds: number): string {
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}

export function count(n: number, word: string): string {
  return `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;
}
