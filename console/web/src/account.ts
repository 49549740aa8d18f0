// What stands behind a forecast: how often it held, what made it, how old that is.

import { make } from "./dom";
import { count, percent, span } from "./format";
import type { AccountFigures } from "./model";

export type Fact = [string, (Node | string)[]];

/** Of flags that a forecast can have; the flag itself stays: status and metrics say no more. */
const FLAG_WORDS: Record<string, string> = {
  "by-load": "steps follow what its services serve, which tells most of its draw",
  "aside-away": "its load, who serves it, or its held caps are not there, so its draw is taken as it is",
  "aside-gaps": "its load or its held caps are missing in over 5 % of its history",
  "new-level": "its past is no longer like its present",
  uncalibrated: "too few such promises are over to correct this one",
  rehearsing: "its history is still gone through",
  "planned-event": "something planned changed it",
  "no-history": "less than a day is known, so it is its ceiling",
  stale: "the newest half hour is missing",
  gaps: "over 5 % of its history is missing",
  partial: "a store behind its history did not answer, so sums are too low",
  "above-p99": "the newest value had passed the p99 that models gave, so its peak is at least what the present tells",
  counter: "it only ever rises: a rate was meant",
  extreme: "it is cut at 20 times the record",
  spike: "one bin stands 20 times above all others and is not believed yet",
  burst: "it was idle until the last day",
  step: "an hour and more lies above all before",
};

/** How a forecast did so far and what it was made of; `offset` is what its correction adds, in words, or nothing. */
export function accountFacts(account: AccountFigures, now: number, dataUntil: number | null, offset: string): Fact[] {
  const list: Fact[] = [];
  const ago = (seconds: number): string => `${span(Math.max(0, Math.floor((now - seconds) / 60) * 60))} ago`;
  list.push(["p99 held", [keptWords(account)]]);
  if (account.reserve_ratio !== null) list.push(["Reserve", [`${account.reserve_ratio.toFixed(2)} × the peaks that came`]]);
  if (account.tiers.length > 0) list.push(["Made by", [tiersOf(account)]]);
  const calibration = account.calibration;
  if (calibration !== null) {
    const updated = calibration.updated_seconds === null ? "" : `, newest ${ago(calibration.updated_seconds)}`;
    const seen = `${count(calibration.live_windows, "live window")} and ${calibration.rehearsed_windows} rehearsed`;
    // Where boards are known, rehearsed windows were of other promises: they make the record above and correct nothing.
    const none = account.flags.includes("uncalibrated");
    list.push(["Calibrated on", [none ? `nothing yet: too few of ${seen} were promised as this one is` : `${seen}${updated}${offset}`]]);
  }
  const fitted = account.fitted_until_seconds === null ? "" : `, models fitted on data until ${ago(account.fitted_until_seconds)}`;
  if (dataUntil !== null) list.push(["Data until", [`${ago(dataUntil)}${fitted}`]]);
  if (account.model_version !== "") list.push(["Version", [account.model_version]]);
  if (account.flags.length > 0) list.push(["Flags", [account.flags.map(flagWords).join("; ")]]);
  return list;
}

/** What the correction adds to a p99, as `accountFacts` takes it. */
export function offsetWords(value: number | null | undefined, figure: (value: number) => string): string {
  if (value === null || value === undefined) return "";
  return `; ${value < 0 ? "takes" : "adds"} ${figure(Math.abs(value))} ${value < 0 ? "off" : "to"} the p99`;
}

function flagWords(flag: string): string {
  const words = FLAG_WORDS[flag];
  return words === undefined ? flag : `${flag}: ${words}`;
}

/** How often the p99 held; promises that were really made apart from windows gone through afterwards. */
function keptWords(account: AccountFigures): string {
  const windows = account.windows ?? 0, broken = account.violations ?? 0;
  if (windows === 0) return "no window is over yet";
  const bound = (share: number | null): string => share === null ? "" : `; over at most ${percent(share)} of them (95 % sure)`;
  const live = account.live_windows, missed = account.live_violations ?? 0;
  if (live === null) return `${windows - broken} of ${count(windows, "window")}, ${count(broken, "violation")}${bound(account.violation_bound)}`;
  const rehearsed = windows - live, kept = `${rehearsed - broken + missed} of ${rehearsed} rehearsed`;
  if (live === 0) return `no live window is over yet; ${kept}${bound(account.violation_bound)}`;
  const told = `${live - missed} of ${count(live, "live window")}, ${count(missed, "violation")}${bound(account.live_violation_bound)}`;
  return rehearsed > 0 ? `${told}; ${kept}` : told;
}

function tiersOf(account: AccountFigures): HTMLElement {
  const cells = account.tiers.flatMap((tier) => {
    const share = make("span", "share");
    share.style.width = percent(tier.weight).replace(" ", "");
    return [make("span", "", tier.name), share, make("span", "", percent(tier.weight))];
  });
  return make("div", "tiers", ...cells);
}
