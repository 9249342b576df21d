/**
 * Runs a whole control plane on the embedded storage: it writes objects of the API, custom resources, and what its controllers
 * write. `power-failures.ts` records it.
 */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import type { Client, Resource } from '../../api/client/client.ts';
import {
  configMaps,
  customResourceDefinitions,
  ipAddresses,
  namespaces,
  secrets,
  services,
} from '../../api/client/resources.ts';
import type { KubeObject } from '../../api/meta/object.ts';
import { isNotFound, tolerate } from '../../api/meta/status-error.ts';
import { type ControlPlane, startControlPlane } from '../../controlplane/main.ts';
import { Random } from '../soak/random.ts';
import { until } from '../until.ts';
import { ANY, type Found, GONE, notesIn } from './ledger.ts';

const WRITES = 12;
const NAMES = ['a', 'b', 'c'];
const NAMESPACE = 'default';
/** The annotation that names the value of an object. */
const TAG = 'test.example.com/tag';

const widgets: Resource = {
  group: 'test.example.com',
  version: 'v1',
  resource: 'widgets',
  kind: 'Widget',
  namespaced: true,
};
const DEFINITION = `${widgets.resource}.${widgets.group}`;

/** Rejects if the control plane cannot start. A start on a disk with room logs no error. */
const start = (folder: string): Promise<ControlPlane> =>
  startControlPlane({
    flags: { dataDir: join(folder, 'data'), bindAddress: '127.0.0.1', securePort: 0, scheduler: false },
  });

/** Kinds whose objects the clients create, update and delete, with what an object of them has beside its metadata. */
const WRITTEN: Readonly<Record<string, { readonly resource: Resource; readonly body: (pad: string) => object }>> = {
  map: { resource: configMaps, body: (pad) => ({ data: { pad } }) },
  secret: { resource: secrets, body: (pad) => ({ stringData: { pad } }) },
  widget: { resource: widgets, body: (pad) => ({ spec: { pad } }) },
};

function objectOf(resource: Resource, name: string, tag: string, body: object): KubeObject {
  const { group, version, kind } = resource;
  const apiVersion = group === '' ? version : `${group}/${version}`;
  return { apiVersion, kind, metadata: { name, namespace: NAMESPACE, annotations: { [TAG]: tag } }, ...body };
}

const tagOf = ({ metadata }: KubeObject): string => metadata.annotations?.[TAG] ?? '';

/** A client that notes what it writes. */
class Writer {
  readonly #client: Client;
  readonly #random: Random;
  readonly #note: (line: string) => void;
  #count = 0;

  constructor(client: Client, random: Random, note: (line: string) => void) {
    this.#client = client;
    this.#random = random;
    this.#note = note;
  }

  /** Makes one write of the key and notes it. `write` returns the value and the revision that were acknowledged. */
  async #noted(key: string, value: string, write: () => Promise<Partial<Written>>): Promise<void> {
    this.#note(`+ ${key} ${value}`);
    const { value: acknowledged = value, revision } = await write();
    this.#note(`= ${key} ${acknowledged}`);
    if (revision !== undefined) this.#note(`@ ${revision}`);
  }

  /** Creates, updates or deletes an object of a kind of `WRITTEN`. */
  async write(kind: string): Promise<void> {
    const { resource, body } = WRITTEN[kind] ?? assert.fail(kind);
    const name = this.#random.pick(NAMES);
    const key = `${kind}-${name}`;
    const current = await tolerate(this.#client.get(resource, NAMESPACE, name), isNotFound);
    if (current !== undefined && this.#random.next() < 0.25)
      return this.#noted(key, GONE, async () => {
        await this.#client.delete(resource, NAMESPACE, name);
        return {};
      });
    const tag = `${process.pid}.${(this.#count += 1)}`;
    const object = objectOf(resource, name, tag, body('x'.repeat(this.#random.pick([10, 3000, 20_000]))));
    const { resourceVersion } = current?.metadata ?? {};
    if (resourceVersion !== undefined) object.metadata.resourceVersion = resourceVersion;
    return this.#noted(key, tag, async () =>
      writtenOf(
        current === undefined
          ? await this.#client.create(resource, NAMESPACE, object)
          : await this.#client.update(resource, object),
      ),
    );
  }

  /** Creates a service, whose value is its address, or deletes it. */
  async writeService(): Promise<void> {
    const name = this.#random.pick(NAMES);
    const key = `service-${name}`;
    const current = await tolerate(this.#client.get(services, NAMESPACE, name), isNotFound);
    if (current !== undefined)
      return this.#noted(key, GONE, async () => {
        await this.#client.delete(services, NAMESPACE, name);
        return {};
      });
    const object = objectOf(services, name, '', { spec: { type: 'NodePort', ports: [{ port: 80 }] } });
    return this.#noted(key, ANY, async () => {
      const created = await this.#client.create(services, NAMESPACE, object);
      return { ...writtenOf(created), value: addressOf(created) };
    });
  }

  /** Creates a namespace with an object in it, and deletes both. */
  async writeNamespace(): Promise<void> {
    const name = `n${process.pid}`;
    const key = `namespace-${name}`;
    await this.#noted(key, 'yes', async () =>
      writtenOf(await this.#client.create(namespaces, '', objectOf(namespaces, name, '', {}))),
    );
    const object = objectOf(configMaps, 'inside', '', {});
    await this.#client.create(configMaps, name, { ...object, metadata: { name: 'inside', namespace: name } });
    await this.#noted(key, GONE, async () => {
      await this.#client.delete(namespaces, '', name);
      const isGone = async (): Promise<boolean> =>
        (await tolerate(this.#client.get(namespaces, '', name), isNotFound)) === undefined;
      await until(`namespace ${name} is gone`, isGone);
      return {};
    });
  }
}

/** What acknowledges a write. */
interface Written {
  readonly value: string;
  readonly revision: string;
}

const writtenOf = ({ metadata }: KubeObject): Pick<Written, 'revision'> => ({
  revision: metadata.resourceVersion ?? assert.fail('no revision'),
});

function addressOf({ spec }: KubeObject): string {
  const { clusterIP, ports } = spec as { clusterIP: string; ports: readonly { nodePort: number }[] };
  return `${clusterIP}:${ports[0]?.nodePort}`;
}

async function define(client: Client): Promise<void> {
  const schema = { openAPIV3Schema: { type: 'object', 'x-kubernetes-preserve-unknown-fields': true } };
  const object = {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: { name: DEFINITION },
    spec: {
      group: widgets.group,
      scope: 'Namespaced',
      names: { plural: widgets.resource, singular: 'widget', kind: widgets.kind },
      versions: [{ name: widgets.version, served: true, storage: true, schema }],
    },
  };
  await client.create(customResourceDefinitions, '', object);
  await servesWidgets(client);
}

const servesWidgets = (client: Client): Promise<unknown> =>
  until('the custom resource is served', async () => {
    const definition = await client.get(customResourceDefinitions, '', DEFINITION);
    const { conditions = [] } = (definition['status'] ?? {}) as { conditions?: { type: string; status: string }[] };
    return (
      conditions.some(({ type, status }) => type === 'Established' && status === 'True') &&
      (await tolerate(
        client.list(widgets, {}).then(() => true),
        isNotFound,
      )) === true
    );
  });

const clusterOf = async (client: Client): Promise<string> =>
  (await client.get(namespaces, '', 'kube-system')).metadata.uid ?? assert.fail('no uid');

async function run(folder: string, seed: number): Promise<void> {
  const note = notesIn(join(folder, 'notes'));
  note(`+ cluster ${ANY}`);
  const plane = await start(folder);
  const { client } = plane;
  note(`= cluster ${await clusterOf(client)}`);
  if ((await tolerate(client.get(customResourceDefinitions, '', DEFINITION), isNotFound)) === undefined) {
    note('+ definition yes');
    await define(client);
    note('= definition yes');
  } else await servesWidgets(client);
  const writers = [...Object.keys(WRITTEN), 'service', 'namespace'].map(async (kind, at) => {
    const writer = new Writer(client, new Random(seed + at), note);
    if (kind === 'namespace') return writer.writeNamespace();
    for (let count = 0; count < WRITES; count += 1)
      await (kind === 'service' ? writer.writeService() : writer.write(kind));
  });
  await Promise.all(writers);
  if (seed % 2 === 0) await plane.close();
  process.exit();
}

/** Starts a control plane on what is left and reads its objects. Rejects if two services have one address. */
export async function readControlPlane(folder: string): Promise<Found> {
  const plane = await start(folder);
  try {
    return await readObjects(plane.client);
  } finally {
    await plane.close();
  }
}

async function readObjects(client: Client): Promise<Found> {
  const values = new Map<string, string>([['cluster', await clusterOf(client)]]);
  const isDefined = (await tolerate(client.get(customResourceDefinitions, '', DEFINITION), isNotFound)) !== undefined;
  if (isDefined) {
    values.set('definition', 'yes');
    await servesWidgets(client);
  }
  let revision = 0;
  for (const [kind, { resource }] of Object.entries(WRITTEN)) {
    if (kind === 'widget' && !isDefined) continue;
    const { items, metadata } = await client.list(resource, { namespace: NAMESPACE });
    revision = Math.max(revision, Number(metadata.resourceVersion));
    for (const item of items) if (tagOf(item) !== '') values.set(`${kind}-${item.metadata.name}`, tagOf(item));
  }
  // One that is being deleted counts as gone: the controller ends the deletion in the next life, which notes nothing of it.
  for (const { metadata } of (await client.list(namespaces)).items)
    if (/^n\d+$/.test(metadata.name ?? '') && metadata.deletionTimestamp === undefined)
      values.set(`namespace-${metadata.name}`, 'yes');
  await readServices(client, values);
  return { values, revision };
}

async function readServices(client: Client, values: Map<string, string>): Promise<void> {
  const reserved = new Set((await client.list(ipAddresses)).items.map(({ metadata }) => metadata.name));
  const given = new Set<string>();
  for (const service of (await client.list(services, { namespace: NAMESPACE })).items) {
    const { name = '' } = service.metadata;
    if (!NAMES.includes(name)) continue;
    const address = addressOf(service);
    values.set(`service-${name}`, address);
    for (const part of address.split(':')) {
      assert.ok(!given.has(part), `two services have ${part}`);
      given.add(part);
    }
    assert.ok(reserved.has(address.split(':')[0]), `the address of ${name} is not reserved: ${address}`);
  }
}

const [folder, seed] = process.argv.slice(2);
if (import.meta.main && folder !== undefined) await run(folder, Number(seed));
