// A list of names and what is to be said of each.

import type { Fact } from "./account";
import { make } from "./dom";

export class FactList {
  private told = "";

  constructor(private readonly host: HTMLElement) {}

  /** The list is made anew only when something on it changed: a reader may be selecting text. */
  show(list: Fact[]): void {
    const text = JSON.stringify(list.map(([name, value]) => [name, ...value.map((part) => (typeof part === "string" ? part : part.textContent))]));
    if (text === this.told) return;
    this.told = text;
    this.host.replaceChildren(...list.flatMap(([name, value]) => [make("dt", "", name), make("dd", "", ...value)]));
  }
}
