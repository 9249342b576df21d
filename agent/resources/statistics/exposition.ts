/**
 * Writes metrics in the Prometheus text format from a snapshot. Endpoints that compute their values at each scrape use
 * it instead of a registry.
 */
import { formatNumber } from '../../../api/component/metrics.ts';

export type Labels = Readonly<Record<string, string>>;

/**
 * Collects the samples of one response. The samples of a family are written together, in the order in which they were added.
 */
export class Exposition {
  readonly #families = new Map<string, string[]>();

  /** Adds a value. The help and type of `name` are written once. Labels are written in the given order. */
  add(
    family: { readonly name: string; readonly type: 'counter' | 'gauge'; readonly help: string },
    value: number,
    labels: Labels = {},
    timeMs?: number,
  ): void {
    let lines = this.#families.get(family.name);
    if (lines === undefined) {
      lines = [`# HELP ${family.name} ${family.help}\n# TYPE ${family.name} ${family.type}\n`];
      this.#families.set(family.name, lines);
    }
    const written = Object.entries(labels).map(([name, text]) => `${name}="${escape(text)}"`);
    lines.push(
      `${family.name}${written.length === 0 ? '' : `{${written.join(',')}}`} ${formatNumber(value)}${timeMs === undefined ? '' : ` ${Math.round(timeMs)}`}\n`,
    );
  }

  /** Writes the families sorted by name, as Kubernetes' registries do. */
  text(): string {
    return [...this.#families.keys()]
      .toSorted()
      .map((name) => this.#families.get(name)?.join('') ?? '')
      .join('');
  }
}

function escape(text: string): string {
  return text.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n');
}
