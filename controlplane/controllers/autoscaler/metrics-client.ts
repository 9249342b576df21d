/** Reads the metrics APIs: resource metrics, custom metrics of pods and other objects, and external metrics. */
import { parseDuration } from '../../../api/component/duration.ts';
import { groupVersion } from '../../../api/client/resources.ts';
import type { TypedClient } from '../../../api/client/typed-client.ts';
import type { KubeObject } from '../../../api/meta/object.ts';
import { ownMember } from '../../../api/meta/own-member.ts';
import { milliUnits, parseQuantity } from '../../../api/meta/quantity.ts';
import { isNotFound } from '../../../api/meta/status-error.ts';
import { MetricsError, type PodMetric, type PodMetrics } from './replica-calculator.ts';
import { groupResourceName } from '../../../api/meta/group-resource.ts';

/** Sends a GET to a path of the API; rejects with a `StatusError`. */
export type RawGet = (path: string) => Promise<unknown>;

const RESOURCE = '/apis/metrics.k8s.io/v1beta1';
const CUSTOM = '/apis/custom.metrics.k8s.io';
const EXTERNAL = '/apis/external.metrics.k8s.io/v1beta1';
const CUSTOM_VERSIONS = ['v1beta2', 'v1beta1'];
const DEFAULT_WINDOW_MS = 60_000;

interface ObjectTarget {
  readonly group: string;
  readonly resource: string;
  /** '' for cluster-scoped objects. */
  readonly namespace: string;
  readonly name: string;
}

interface Measured {
  readonly milli: number;
}

interface Usage {
  readonly name?: string;
  readonly usage?: Readonly<Record<string, string>>;
}

interface ResourceItem {
  readonly metadata?: { readonly name?: string | undefined };
  readonly timestamp?: string;
  readonly window?: string;
  readonly containers?: readonly Usage[];
}

interface ValueItem {
  readonly describedObject?: { readonly name?: string };
  readonly timestamp?: string;
  readonly windowSeconds?: number;
  readonly value?: string;
}

/** Returns the thousandths of a quantity. */
export const milliOf = (text: string): number => Number(milliUnits(parseQuantity(text)));

const podMetrics = groupVersion('metrics.k8s.io', 'v1beta1').namespaced<KubeObject & ResourceItem>(
  'pods',
  'PodMetrics',
);

/** Reads measurements of pods and objects. Methods reject with a `MetricsError` if they cannot be read. Nothing is cached. */
export class MetricsClient {
  readonly #client: Pick<TypedClient, 'list'>;
  readonly #get: RawGet;

  /**
   * `client` reads resource metrics that the API serves itself. `get` reads resource metrics where another server serves them,
   * and the metrics of adapters.
   */
  constructor(client: Pick<TypedClient, 'list'>, get: RawGet) {
    this.#client = client;
    this.#get = get;
  }

  /**
   * Reads the usage of a resource by pods. `container` is '' for the whole pod. Pods are omitted if the container is not
   * measured, or for the whole pod one of its containers.
   */
  async resource(namespace: string, selector: string, resource: string, container: string): Promise<PodMetrics> {
    let items: readonly ResourceItem[];
    try {
      ({ items } = await this.#client.list(podMetrics, { namespace, labelSelector: selector }));
    } catch (error) {
      if (isNotFound(error)) return this.#measured(await this.#aggregated(namespace, selector), resource, container);
      const failed = 'unable to fetch metrics from resource metrics API';
      throw new MetricsError(`${failed}: ${(error as Error).message}`, { cause: error });
    }
    return this.#measured(items, resource, container);
  }

  #aggregated(namespace: string, selector: string): Promise<readonly ResourceItem[]> {
    const path = `${RESOURCE}/namespaces/${namespace}/pods?${new URLSearchParams({ labelSelector: selector })}`;
    return this.#items(path, 'unable to fetch metrics from resource metrics API');
  }

  #measured(items: readonly ResourceItem[], resource: string, container: string): PodMetrics {
    if (items.length === 0) throw new MetricsError('no metrics returned from resource metrics API');
    const found = new Map<string, PodMetric>();
    for (const item of items) {
      const milli = amountOf(item, resource, container);
      if (milli === undefined) continue;
      found.set(item.metadata?.name ?? '', {
        milli,
        timeMs: Date.parse(item.timestamp ?? '') || 0,
        windowMs: parseDuration(item.window ?? '') || DEFAULT_WINDOW_MS,
      });
    }
    return found;
  }

  /** Returns the metric of each pod that the selector matches, by name. */
  async pods(namespace: string, selector: string, metric: string, metricSelector: string): Promise<PodMetrics> {
    const items = await this.#custom(
      `namespaces/${namespace}/pods/*/${encodeURIComponent(metric)}`,
      { labelSelector: selector },
      metricSelector,
    );
    return new Map(
      items.map((item) => [
        item.describedObject?.name ?? '',
        {
          milli: milliOf(item.value ?? '0'),
          timeMs: Date.parse(item.timestamp ?? '') || 0,
          windowMs: item.windowSeconds === undefined ? DEFAULT_WINDOW_MS : item.windowSeconds * 1000,
        },
      ]),
    );
  }

  /** Returns the metric of one object. Rejects with a `MetricsError` if it has none. */
  async object(target: ObjectTarget, metric: string, metricSelector: string): Promise<Measured> {
    const { namespace, name } = target;
    const place = namespace === '' ? '' : `namespaces/${namespace}/`;
    const [item] = await this.#custom(
      `${place}${groupResourceName(target)}/${encodeURIComponent(name)}/${encodeURIComponent(metric)}`,
      {},
      metricSelector,
    );
    if (item === undefined) throw new MetricsError('no metrics returned from custom metrics API');
    return { milli: milliOf(item.value ?? '0') };
  }

  /** Returns the sum of all values of the metric. */
  async external(namespace: string, metric: string, selector: string): Promise<Measured> {
    const query = new URLSearchParams({ labelSelector: selector });
    const items = await this.#items<ValueItem>(
      `${EXTERNAL}/namespaces/${namespace}/${encodeURIComponent(metric)}?${query}`,
      'unable to fetch metrics from external metrics API',
    );
    if (items.length === 0) throw new MetricsError('no metrics returned from external metrics API');
    return { milli: items.reduce((sum, { value = '0' }) => sum + milliOf(value), 0) };
  }

  async #custom(path: string, query: Record<string, string>, metricSelector: string): Promise<readonly ValueItem[]> {
    const parameters = new URLSearchParams({
      ...query,
      ...(metricSelector === '' ? {} : { metricLabelSelector: metricSelector }),
    });
    const failed = 'unable to fetch metrics from custom metrics API';
    for (const version of CUSTOM_VERSIONS.slice(0, -1)) {
      try {
        return itemsOf(await this.#get(`${CUSTOM}/${version}/${path}?${parameters}`));
      } catch (error) {
        // The adapter serves only the older version.
        if (!isNotFound(error)) throw new MetricsError(`${failed}: ${(error as Error).message}`, { cause: error });
      }
    }
    return this.#items<ValueItem>(`${CUSTOM}/${CUSTOM_VERSIONS.at(-1)}/${path}?${parameters}`, failed);
  }

  async #items<Item>(path: string, failed: string): Promise<readonly Item[]> {
    try {
      return itemsOf(await this.#get(path));
    } catch (error) {
      throw new MetricsError(`${failed}: ${(error as Error).message}`, { cause: error });
    }
  }
}

function itemsOf<Item>(answer: unknown): readonly Item[] {
  const { items } = (answer ?? {}) as { items?: unknown };
  return Array.isArray(items) ? (items as Item[]) : [];
}

function amountOf(item: ResourceItem, resource: string, container: string): number | undefined {
  let sum = 0;
  let isMeasured = false;
  for (const { name, usage } of item.containers ?? []) {
    if (container !== '' && name !== container) continue;
    const amount = ownMember(usage, resource);
    if (amount === undefined) {
      if (container === '') return undefined;
      continue;
    }
    sum += milliOf(amount);
    isMeasured = true;
  }
  return isMeasured ? sum : undefined;
}
