/**
 * Serves an open registry: each served version of the built-in resources, their subresources, and the actions on pods, nodes
 * and services.
 */
import { builtinResources } from '../../api/schema/resources.ts';
import type { Schema } from '../../api/schema/schema.ts';
import type { AdmissionChain } from '../security/admission/admission.ts';
import type { Rest } from '../model/rest.ts';
import type { FieldManagement, VersionLookup } from './field-management.ts';
import { statusOnly } from './generic-strategy.ts';
import { createComponentStatusRest } from './kinds/core/component-statuses.ts';
import { createConnectRest, DEFAULT_ADDRESS_TYPES } from './kinds/core/connections.ts';
import { createBindingRest, expectedOf } from './kinds/core/pod-actions.ts';
import { createEvictionRest } from './kinds/core/pod-eviction.ts';
import { builtInReader, createDecoder, type Decoder } from './object-decoding.ts';
import { otherVersion } from './other-version.ts';
import { type Registry, structOf } from './registry.ts';
import { createResourceRest, createSubresourceRest } from './resource-rest.ts';
import { createScaleRest } from './scale-rest.ts';
import type { Store } from './store.ts';
import type { ServedVersion } from './version-codec.ts';

/** What writes need beyond the open registry. */
export interface ServeOptions {
  readonly schema: Schema;
  readonly admission: AdmissionChain;
  /** Returns the managed fields of a kind. `struct` is that of the served version. */
  readonly fieldManagement: (
    expected: ServedVersion['expected'],
    decoder: Decoder,
    others?: VersionLookup,
  ) => FieldManagement;
  /** The types of a node's addresses at which its agent is called, in order. `DEFAULT_ADDRESS_TYPES` if absent. */
  readonly addressTypes?: readonly string[];
  /** Endpoints of other components, such as reviews and tokens. They replace those of the registry with the same path. */
  readonly extensions?: readonly Rest[];
}

/** Replaces all rows of the registry's catalog. Custom resources are added afterwards. */
export function serveRegistry(registry: Registry, options: ServeOptions): void {
  const decoder = createDecoder(options.schema);
  const rests = inOrder([
    ...storedRests(registry, options, decoder),
    ...actionRests(registry, options, decoder),
    ...(options.extensions ?? []),
  ]);
  registry.catalog.replace(rests.filter(({ info }) => registry.serves(info)));
}

/** Returns the endpoints of stored resources. */
function storedRests(registry: Registry, options: ServeOptions, decoder: Decoder): Rest[] {
  const rests: Rest[] = [];
  for (const info of builtinResources()) {
    const stored = registry.storeOf(info);
    if (stored === undefined) continue;
    const isOfOtherGroup = info.group !== stored.info.group;
    const store: Store = {
      ...stored,
      admission: options.admission,
      ...(isOfOtherGroup ? { servedGroup: info.group } : {}),
    };
    const conversion = registry.conversionOf(info);
    const expected = {
      group: info.group,
      version: info.version,
      kind: info.kind,
      struct: structOf(options.schema, info),
      reader: builtInReader,
      applyDefaults:
        conversion === undefined ? store.strategy.applyDefaults?.bind(store.strategy) : conversion.applyDefaults,
    };
    const version: ServedVersion = {
      store,
      info,
      expected,
      conversion,
      decoder,
      fieldManagement: options.fieldManagement(expected, decoder, (apiVersion) =>
        otherVersion(options.schema, (object, kind) => registry.convert(object, kind), info, apiVersion),
      ),
    };
    rests.push(createResourceRest(version), ...subresourceRests(version, options));
  }
  return rests;
}

function subresourceRests(version: ServedVersion, options: ServeOptions): Rest[] {
  const { strategy } = version.store;
  const rests: Rest[] = [];
  for (const subresource of version.info.subresources) {
    const subresourceStrategy = strategy.subresources?.[subresource.name];
    if (subresource.name === 'status')
      rests.push(createSubresourceRest(version, subresource, strategy.status ?? statusOnly));
    else if (subresourceStrategy !== undefined)
      rests.push(createSubresourceRest(version, subresource, subresourceStrategy));
    else if (subresource.name === 'scale') rests.push(createScaleRest(version, subresource, options.schema));
  }
  return rests;
}

/** Returns the endpoints of actions on pods, nodes and services that do not write the whole object. */
function actionRests({ stores }: Registry, options: ServeOptions, decoder: Decoder): Rest[] {
  const store = (group: string, resource: string): Store => ({
    ...stores.get(group, resource),
    admission: options.admission,
  });
  const pods = store('', 'pods');
  const parts = { pods, schema: options.schema, decoder };
  const evictionParts = {
    ...parts,
    budgets: store('policy', 'poddisruptionbudgets'),
    budgetFields: options.fieldManagement(expectedOf(options.schema, 'policy', 'v1', 'PodDisruptionBudget'), decoder),
  };
  const connectStores = {
    pods,
    nodes: store('', 'nodes'),
    services: store('', 'services'),
    endpoints: store('', 'endpoints'),
    addressTypes: options.addressTypes ?? DEFAULT_ADDRESS_TYPES,
  };
  const rests: Rest[] = [];
  for (const info of builtinResources()) {
    if (info.group !== '') continue;
    if (info.resource === 'bindings') rests.push(createBindingRest(parts, info, undefined));
    if (info.resource === 'componentstatuses') rests.push(createComponentStatusRest(info));
    for (const subresource of info.subresources) {
      if (info.resource === 'pods' && subresource.name === 'binding')
        rests.push(createBindingRest(parts, info, subresource));
      else if (info.resource === 'pods' && subresource.name === 'eviction')
        rests.push(createEvictionRest(evictionParts, info, subresource));
      else {
        const connect = createConnectRest(connectStores, info, subresource);
        if (connect !== undefined) rests.push(connect);
      }
    }
  }
  return rests;
}

/** Returns the rows in the order of the table. The later of two rows for one path counts. */
function inOrder(rests: readonly Rest[]): Rest[] {
  const byPath = new Map<string, Rest>();
  const keyOfRest = ({ info, subresource }: Rest): string =>
    `${info.group}/${info.version}/${info.resource}/${subresource?.name ?? ''}`;
  for (const rest of rests) byPath.set(keyOfRest(rest), rest);
  const order = new Map(
    builtinResources().map((info, index) => [`${info.group}/${info.version}/${info.resource}`, index]),
  );
  const indexOf = ({ info }: Rest): number => order.get(`${info.group}/${info.version}/${info.resource}`) ?? order.size;
  return [...byPath.values()].sort((a, b) => indexOf(a) - indexOf(b));
}
