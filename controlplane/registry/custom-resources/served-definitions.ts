/**
 * Holds the custom resources that are served now, by definition and by version, with their schemas, strategies and conversions.
 */
import { cloneJson } from '../../../api/meta/json-equality.ts';
import { apiVersionOf, type GroupVersionKind, type JsonObject, type KubeObject } from '../../../api/meta/object.ts';
import type { ResourceInfo, StructType } from '../../../api/schema/schema.ts';
import type { Conversion, Strategy } from '../strategy.ts';
import type { WatchCache } from '../../storage/watch-cache.ts';
import { applyDefaults } from '../schemas/defaulting.ts';
import type { JsonSchema } from '../schemas/json-schema.ts';
import type { ServedSet } from './served-versions.ts';

/**
 * Lookups are synchronous, except for `convert`. A definition that is not served is absent, but a lookup by `ResourceInfo`
 * still finds what a running request was routed to.
 */
export class ServedDefinitions {
  readonly #byName = new Map<string, readonly ServedSet[]>();
  readonly #caches = new Map<string, WatchCache>();
  readonly #byInfo = new WeakMap<ResourceInfo, ServedSet>();

  /** Sets what a definition serves. `sets` are its versions, and `cache` has the objects of all versions. */
  set(name: string, sets: readonly ServedSet[], cache: WatchCache): void {
    for (const set of sets) this.#byInfo.set(set.info, set);
    this.#byName.set(name, sets);
    this.#caches.set(name, cache);
  }

  /** Removes the definition of this name, `<plural>.<group>`. */
  delete(name: string): void {
    this.#byName.delete(name);
    this.#caches.delete(name);
  }

  cacheOf(group: string, resource: string): WatchCache | undefined {
    return this.#caches.get(`${resource}.${group}`);
  }

  /** Returns what is served of one version of a resource, or `undefined` if the resource is no custom resource. */
  servedSet(info: ResourceInfo): ServedSet | undefined {
    return this.#byInfo.get(info);
  }

  strategyOf(info: ResourceInfo): Strategy | undefined {
    return this.#byInfo.get(info)?.strategy;
  }

  schemaOf(info: ResourceInfo): JsonSchema | undefined {
    return this.#byInfo.get(info)?.schema;
  }

  /**
   * Converts a custom resource to another version, via the stored one, at which it stays if the other is not served. Returns
   * `undefined` if the kind is not a custom resource.
   */
  convert(object: KubeObject, kind: GroupVersionKind): Promise<KubeObject> | undefined {
    for (const sets of this.#byName.values()) {
      const [first] = sets;
      if (first?.info.group !== kind.group || first.info.kind !== kind.kind) continue;
      const setOf = (apiVersion: string | undefined): ServedSet | undefined =>
        sets.find(({ info }) => apiVersionOf(info) === apiVersion);
      return converted(object, setOf(object.apiVersion), setOf(apiVersionOf(kind)));
    }
    return undefined;
  }

  /** Returns the type of a version of a custom resource, or `undefined` if it is not served. */
  structOf({ group, version, kind }: GroupVersionKind): StructType | undefined {
    for (const sets of this.#byName.values()) {
      const set = sets.find(({ info }) => info.group === group && info.version === version && info.kind === kind);
      if (set !== undefined) return set.struct;
    }
    return undefined;
  }

  /** Sets the defaults of the schema of the object's version. Returns false if the object is not a custom resource. */
  applyDefaults(object: KubeObject): boolean {
    for (const sets of this.#byName.values()) {
      const set = sets.find(({ info }) => apiVersionOf(info) === object.apiVersion && info.kind === object.kind);
      if (set === undefined) continue;
      applyDefaults(object as unknown as JsonObject, set.schema);
      return true;
    }
    return false;
  }
}

async function converted(
  object: KubeObject,
  from: ServedSet | undefined,
  to: ServedSet | undefined,
): Promise<KubeObject> {
  const through = async (conversion: Conversion, one: KubeObject, way: 'stored' | 'served'): Promise<KubeObject> => {
    if (conversion.convertAll !== undefined) return (await conversion.convertAll([one], way))[0] ?? one;
    return way === 'stored' ? conversion.toStored(cloneJson(one)) : conversion.fromStored(cloneJson(one));
  };
  // Objects in a version that is not served have the stored version.
  const stored = from === undefined ? object : await through(from.conversion, object, 'stored');
  return to === undefined ? stored : through(to.conversion, stored, 'served');
}
