// One unit and one clock: kilowatts, and the controller's time in UTC.

export function kilowatts(watts: number | null | undefined): string {
  return watts === null || watts === undefined ? "–" : `${(watts / 1000).toLocaleString("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 })} kW`;
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
