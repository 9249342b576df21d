/**
 * Measures the memory that a definition takes in addition to its own object. Clusters have hundreds of definitions with large
 * schemas.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { silentLogger } from '../../../../../api/component/logger.ts';
import type { KubeObject } from '../../../../../api/meta/object.ts';
import type { TypeNode } from '../../../../../api/schema/schema.ts';
import { namedStatus, takenBy } from '../../../../../controlplane/registry/custom-resources/accepted-names.ts';
import {
  CustomResources,
  type CustomResourcesOptions,
} from '../../../../../controlplane/registry/custom-resources/custom-resources.ts';
import type { Definition } from '../../../../../controlplane/registry/kinds/apiextensions/definition.ts';
import type { JsonSchema } from '../../../../../controlplane/registry/schemas/json-schema.ts';
import { structTypeOf } from '../../../../../controlplane/registry/schemas/schema-type.ts';
import { ServedDefinitions } from '../../../../../controlplane/registry/custom-resources/served-definitions.ts';
import { createCatalog } from '../../../../../controlplane/registry/resource-catalog.ts';
import { openMemoryStorage } from '../../../../../controlplane/storage/memory.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';

const metadata = { name: 'ObjectMeta', fields: new Map() };

describe('the type of a custom resource', () => {
  it('is built as far as it is used', () => {
    let reads = 0;
    const inner: JsonSchema = {
      type: 'object',
      get properties() {
        reads += 1;
        return { size: { type: 'integer' } } as const;
      },
    };
    const schema: JsonSchema = { type: 'object', properties: { spec: { type: 'object', properties: { inner } } } };
    const struct = structTypeOf({ group: 'example.com', version: 'v1', kind: 'Thing' }, schema, metadata);
    const member = (type: TypeNode | undefined, name: string): TypeNode | undefined =>
      type?.kind === 'struct' ? type.struct.fields.get(name)?.type : undefined;
    const found = member(member({ kind: 'struct', struct }, 'spec'), 'inner');
    assert.equal(reads, 0);
    assert.deepEqual(member(found, 'size'), { kind: 'scalar', scalar: 'int64' });
    assert.deepEqual(member(found, 'size'), { kind: 'scalar', scalar: 'int64' });
    assert.equal(reads, 1);
  });
});

const NAME = 'things.example.com';

function definition(resourceVersion: string, status?: object): KubeObject {
  const schema = { type: 'object', properties: { spec: { type: 'object' } } };
  return {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: { name: NAME, uid: 'u', resourceVersion },
    spec: {
      group: 'example.com',
      scope: 'Namespaced',
      names: { kind: 'Thing', plural: 'things', singular: 'thing', listKind: 'ThingList' },
      versions: [{ name: 'v1', served: true, storage: true, schema: { openAPIV3Schema: schema } }],
    },
    ...(status === undefined ? {} : { status }),
  } as KubeObject;
}

type Versioned = { readonly spec: { readonly versions: { readonly schema: { readonly openAPIV3Schema: object } }[] } };
const schemaIn = (object: KubeObject | undefined): unknown =>
  (object as Versioned | undefined)?.spec.versions[0]?.schema.openAPIV3Schema;

describe('a definition that is accepted', () => {
  it('is served from the object of the reader, and not from a second one', async () => {
    const abort = new AbortController();
    const clock = new FakeClock();
    const served = new ServedDefinitions();
    const catalog = createCatalog();
    const installing = namedStatus(definition('0') as unknown as Definition, takenBy([]), clock.now());
    let shown = definition('1', installing);
    // Like in the control plane, the informer reports a write before the client gets its response, with another object.
    const client = {
      update: (_resource: unknown, object: KubeObject) => {
        const status = object['status'] as object;
        shown = definition('2', status);
        return Promise.resolve(definition('2', status));
      },
    };
    const resources = new CustomResources({
      catalog,
      served,
      storage: openMemoryStorage({ clock }),
      clock,
      logger: silentLogger,
      client,
      signal: abort.signal,
      metadata,
      fieldManagement: () => ({}),
      decoder: {},
      definitions: {
        get: () => shown,
        list: () => [shown],
        subscribe: (listener: (change: { current: KubeObject; previous: undefined }) => void) =>
          listener({ current: shown, previous: undefined }),
      },
    } as unknown as CustomResourcesOptions);
    await resources.start();
    const [info] = catalog.resources();
    assert.ok(info !== undefined, 'the resource is served');
    assert.equal(served.schemaOf(info), schemaIn(shown));
    abort.abort();
  });
});
