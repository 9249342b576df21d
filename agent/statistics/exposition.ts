/** Writes figures of one moment in the Prometheus text format: for pages that are made from a snapshot, where no series is kept. */

export type Labels = Readonly<Record<string, string>>;

export class Exposition {
  readonly #families = new Map<string, string[]>();

  /** `name` with its help and type once, then a line a value. Labels with `undefined` order are written as given. */
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
      `${family.name}${written.length === 0 ? '' : `{${written.join(',')}}`} ${number(value)}${timeMs === undefined ? '' : ` ${Math.round(timeMs)}`}\n`,
    );
  }

  /** Families by name, as the reference's registries write them. */
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

/** Large and tiny numbers have an exponent of a sign and two digits. */
function number(value: number): string {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? 'NaN' : value > 0 ? '+Inf' : '-Inf';
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e21 || size < 1e-4)) return value.toExponential().replace(/e([+-])(\d)$/, 'e$10$2');
  return String(value);
}
