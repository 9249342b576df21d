/**
 * Implements counters, gauges and histograms with labels, and their text exposition.
 *
 * The callers must bound the number of label values.
 */
import { ByLabels } from './by-labels.ts';
import { helpWithStability } from './metric-stability.ts';

/** The content type of metrics pages: version 0.0.4 of the text format of Prometheus, with escaped names. */
export const METRICS_TYPE = 'text/plain; version=0.0.4; charset=utf-8; escaping=underscores';

/** The headers of such pages: the type, and the start of this process in seconds, as the Prometheus client for Go sends it. */
export const METRICS_HEADERS = {
  'content-type': METRICS_TYPE,
  'process-start-time-unix': String(Math.floor(performance.timeOrigin / 1000)),
} as const;

/** A series that only grows. */
export interface Counter {
  inc(by?: number): void;
}

/** A series that goes up and down. */
export interface Gauge {
  set(value: number): void;
  inc(by?: number): void;
}

/** A series of observations in buckets. */
export interface Histogram {
  observe(value: number): void;
}

/** A metric with labels. Values are in the order in which the labels were declared. */
export interface Family<Series> {
  /** Returns the series of these values, and creates it if there is none. Throws if their number is not that of the labels. */
  with(...values: string[]): Series;
  delete(...values: string[]): void;
}

interface MetricOptions {
  readonly name: string;
  readonly help: string;
  readonly labels?: readonly string[];
}

type Kind = 'counter' | 'gauge' | 'histogram';

const DURATION_BUCKETS: readonly number[] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

/** Owns the families of one page. */
export class MetricsRegistry {
  readonly #families: MetricFamily<Series>[] = [];
  readonly #names = new Map<string, MetricFamily<Series>>();
  readonly #collectors = new Set<() => void>();

  /** Registers a counter, or returns the one of this name. Throws if the name is that of another kind of metric. */
  counter(options: MetricOptions): Family<Counter> {
    return this.#add('counter', options, () => new Value());
  }

  /** Registers a gauge, or returns the one of this name. Throws if the name is that of another kind of metric. */
  gauge(options: MetricOptions): Family<Gauge> {
    return this.#add('gauge', options, () => new Value());
  }

  /**
   * Registers a histogram, or returns the one of this name. The default buckets are for durations in seconds. Throws if the
   * name is that of another kind of metric.
   */
  histogram(options: MetricOptions & { readonly buckets?: readonly number[] }): Family<Histogram> {
    const buckets = options.buckets ?? DURATION_BUCKETS;
    return this.#add('histogram', options, () => new Buckets(buckets));
  }

  /**
   * Registers a function that runs before each exposition, until the returned function is called. It sets gauges that are
   * cheaper to read than to keep current.
   */
  collect(collector: () => void): () => void {
    this.#collectors.add(collector);
    return () => void this.#collectors.delete(collector);
  }

  /** Returns all registered metrics, whether or not they have values. */
  families(): readonly { readonly name: string; readonly kind: string; readonly labels: readonly string[] }[] {
    return this.#families.map((family) => family.description());
  }

  /** Renders the Prometheus text format 0.0.4: families by name, and series by labels, as Prometheus' client for Go does. */
  text(): string {
    for (const collector of this.#collectors) collector();
    const lines: string[] = [];
    for (const family of this.#families.toSorted((left, right) => (left.name < right.name ? -1 : 1)))
      family.render(lines);
    return lines.join('');
  }

  /** Returns the existing family for an existing name, because parts that are started twice in one process share it. */
  #add<S extends Series>(kind: Kind, options: MetricOptions, create: () => S): MetricFamily<S> {
    const existing = this.#names.get(options.name);
    if (existing !== undefined) {
      if (existing.kind !== kind) throw new Error(`metric ${options.name} is a ${existing.kind}`);
      return existing as MetricFamily<Series> as MetricFamily<S>;
    }
    const family = new MetricFamily(kind, options, create);
    this.#names.set(options.name, family as unknown as MetricFamily<Series>);
    this.#families.push(family as unknown as MetricFamily<Series>);
    return family;
  }
}

interface Series {
  render(lines: string[], name: string, labels: string): void;
}

interface Entry<S> {
  readonly labels: string;
  readonly series: S;
}

class MetricFamily<S extends Series> implements Family<S> {
  readonly kind: Kind;
  readonly #options: MetricOptions;
  readonly #create: () => S;
  readonly #entries = new ByLabels<Entry<S>>();
  /** The entries in the order of their labels; `undefined` after a change. */
  #sorted: readonly Entry<S>[] | undefined;

  constructor(kind: Kind, options: MetricOptions, create: () => S) {
    this.kind = kind;
    this.#options = options;
    this.#create = create;
  }

  get name(): string {
    return this.#options.name;
  }

  description(): { readonly name: string; readonly kind: string; readonly labels: readonly string[] } {
    return { name: this.#options.name, kind: this.kind, labels: this.#options.labels ?? [] };
  }

  with(...values: string[]): S {
    const found = this.#entries.get(values);
    if (found !== undefined) return found.series;
    const names = this.#options.labels ?? [];
    if (values.length !== names.length) throw new Error(`metric ${this.#options.name} has ${names.length} labels`);
    const series = this.#create();
    const pairs = names.map((name, at) => `${name}="${escapeValue(values[at] ?? '')}"`);
    this.#entries.set(values, { labels: pairs.toSorted().join(','), series });
    this.#sorted = undefined;
    return series;
  }

  delete(...values: string[]): void {
    this.#entries.delete(values);
    this.#sorted = undefined;
  }

  render(lines: string[]): void {
    const { name } = this.#options;
    if (this.#entries.isEmpty) return;
    const help = helpWithStability(name, this.#options.help).replaceAll('\\', '\\\\').replaceAll('\n', '\\n');
    lines.push(`# HELP ${name} ${help}\n# TYPE ${name} ${this.kind}\n`);
    this.#sorted ??= [...this.#entries.values()].sort((left, right) => (left.labels < right.labels ? -1 : 1));
    for (const { labels, series } of this.#sorted) series.render(lines, name, labels);
  }
}

class Value implements Counter, Gauge, Series {
  #value = 0;

  inc(by = 1): void {
    this.#value += by;
  }

  set(value: number): void {
    this.#value = value;
  }

  render(lines: string[], name: string, labels: string): void {
    lines.push(`${name}${labels === '' ? '' : `{${labels}}`} ${formatNumber(this.#value)}\n`);
  }
}

class Buckets implements Histogram, Series {
  readonly #bounds: readonly number[];
  readonly #counts: Float64Array;
  #sum = 0;
  #count = 0;

  constructor(bounds: readonly number[]) {
    this.#bounds = bounds;
    this.#counts = new Float64Array(bounds.length);
  }

  observe(value: number): void {
    this.#sum += value;
    this.#count++;
    const bounds = this.#bounds;
    for (let at = 0; at < bounds.length; at++) {
      if (value <= (bounds[at] ?? 0)) {
        this.#counts[at] = (this.#counts[at] ?? 0) + 1;
        return;
      }
    }
  }

  render(lines: string[], name: string, labels: string): void {
    const prefix = labels === '' ? '' : `${labels},`;
    let cumulative = 0;
    for (let at = 0; at < this.#bounds.length; at++) {
      cumulative += this.#counts[at] ?? 0;
      lines.push(`${name}_bucket{${prefix}le="${formatNumber(this.#bounds[at] ?? 0)}"} ${formatNumber(cumulative)}\n`);
    }
    const braces = labels === '' ? '' : `{${labels}}`;
    const count = formatNumber(this.#count);
    lines.push(`${name}_bucket{${prefix}le="+Inf"} ${count}\n`);
    lines.push(`${name}_sum${braces} ${formatNumber(this.#sum)}\n${name}_count${braces} ${count}\n`);
  }
}

function escapeValue(value: string): string {
  return value.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n');
}

/** Formats numbers as the Prometheus client for Go does. Prometheus compares the labels `le` of buckets as texts. */
export function formatNumber(value: number): string {
  if (value === Number.POSITIVE_INFINITY) return '+Inf';
  if (value === Number.NEGATIVE_INFINITY) return '-Inf';
  const size = Math.abs(value);
  if (size >= 1e6 || (size < 1e-4 && size !== 0)) {
    return value.toExponential().replace(/e([+-])(\d)$/, 'e$10$2');
  }
  return String(value);
}
