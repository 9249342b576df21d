/**
 * Keeps the inventory: for each file of the manifests folders, a ConfigMap in kube-system with the objects that the file
 * applied. It is written before an object is, so that a killed process leaves no object without an entry.
 *
 * An inventory of another installation, which comes with a restored backup, says nothing about the folders of this host:
 * nothing of it is deleted before its file is seen here.
 *
 * Users may write to ConfigMaps, so an entry alone is no reason to delete an object: the object must have the label as well.
 */
import { createHash } from 'node:crypto';
import { basename } from 'node:path';
import { parseJson, stringifyJson } from '../../../api/codec/json.ts';
import type { Client } from '../../../api/client/client.ts';
import type { ObjectReference } from '../../../api/client/event-report.ts';
import { configMaps } from '../../../api/client/resources.ts';
import type { KubeObject } from '../../../api/meta/object.ts';
import { tolerateRaces } from '../../../api/meta/status-error.ts';
import { SYSTEM_NAMESPACE } from '../../../api/meta/system-namespaces.ts';

/** The label of applied objects. Its value is the name of the ConfigMap. */
export const MANIFEST_LABEL = 'orchlet.local/manifest';
const INVENTORY_LABEL = 'orchlet.local/inventory';
const INVENTORY = 'manifests';
/** The number of characters of a file's name that the name of its inventory contains. */
const MAX_SLUG = 40;

/** An object that a file applied. */
export interface InventoryEntry {
  readonly group: string;
  readonly kind: string;
  readonly namespace: string;
  readonly name: string;
  /** The UID; empty until the object is known to exist. */
  readonly uid: string;
  /** Whether the object existed before the file named it. Such an object outlives the file. */
  readonly isAdopted: boolean;
}

/** Returns the identity of an object, which is the same in every version. */
export function keyOf({ group, kind, namespace, name }: Omit<InventoryEntry, 'uid' | 'isAdopted'>): string {
  return [group, kind, namespace, name].join('\0');
}

/** The inventory of one file: the entries as they should be, and what was last written. */
export class FileInventory {
  readonly path: string;
  readonly name: string;
  readonly entries = new Map<string, InventoryEntry>();
  readonly #installation: string;
  #isOwn = true;
  #uid = '';
  #written = '';

  /** `installation` differs between data directories. */
  constructor(path: string, installation: string) {
    this.path = path;
    this.#installation = installation;
    this.name = inventoryName(path);
  }

  /** Reads a ConfigMap. Returns `undefined` if it is not one that `write` wrote. */
  static read(object: KubeObject, installation: string): FileInventory | undefined {
    const data = (object['data'] ?? {}) as Readonly<Record<string, unknown>>;
    if (typeof data['path'] !== 'string' || typeof data['objects'] !== 'string') return undefined;
    const inventory = new FileInventory(data['path'], installation);
    if (inventory.name !== object.metadata.name) return undefined;
    for (const line of data['objects'].split('\n')) {
      const entry = readEntry(line);
      if (entry !== undefined) inventory.entries.set(keyOf(entry), entry);
    }
    inventory.#uid = object.metadata.uid ?? '';
    inventory.#written = data['objects'];
    inventory.#isOwn = data['installation'] === installation;
    return inventory;
  }

  /** Whether the file was on this host, so that its absence means that it was removed. */
  get isOwn(): boolean {
    return this.#isOwn;
  }

  get reference(): ObjectReference {
    return { apiVersion: 'v1', kind: 'ConfigMap', namespace: SYSTEM_NAMESPACE, name: this.name, uid: this.#uid };
  }

  /** Takes over the inventory of another installation, whose file is here as well. */
  takeOver(): void {
    if (this.#isOwn) return;
    this.#isOwn = true;
    this.#written = '';
  }

  /** Writes the entries if they have changed, unless the stored inventory is of another installation. */
  async write(client: Client): Promise<void> {
    const objects = [...this.entries.values()].map((entry) => stringifyJson(entry)).join('\n');
    if (this.#uid !== '' && (objects === this.#written || !this.#isOwn)) return;
    const labels = { [INVENTORY_LABEL]: INVENTORY };
    const written = await client.patch(configMaps, SYSTEM_NAMESPACE, this.name, {
      type: 'apply',
      body: {
        apiVersion: 'v1',
        kind: 'ConfigMap',
        metadata: { name: this.name, namespace: SYSTEM_NAMESPACE, labels },
        data: { path: this.path, installation: this.#installation, objects },
      },
      force: true,
    });
    this.#uid = written.metadata.uid ?? '';
    this.#written = objects;
  }

  /** Deletes the stored ConfigMap, if there is one. */
  async remove(client: Client): Promise<void> {
    if (this.#uid !== '') await tolerateRaces(client.delete(configMaps, SYSTEM_NAMESPACE, this.name));
  }
}

/** Returns the inventories by the paths of their files. */
export async function readInventories(client: Client, installation: string): Promise<Map<string, FileInventory>> {
  const { items } = await client.list(configMaps, {
    namespace: SYSTEM_NAMESPACE,
    labelSelector: `${INVENTORY_LABEL}=${INVENTORY}`,
  });
  const found = items
    .map((object) => FileInventory.read(object, installation))
    .filter((inventory) => inventory !== undefined);
  return new Map(found.map((inventory) => [inventory.path, inventory]));
}

/** Returns a name that people can read, and that a part of a hash makes unique. It is also the value of a label. */
export function inventoryName(path: string): string {
  const slug = basename(path)
    .toLowerCase()
    .replace(/\.(?:ya?ml|json)$/, '')
    .replaceAll(/[^a-z0-9]+/g, '-')
    .replaceAll(/^-|-$/g, '')
    .slice(0, MAX_SLUG);
  const hash = createHash('sha256').update(path).digest('hex').slice(0, 10);
  return ['manifests', ...(slug === '' ? [] : [slug]), hash].join('-').replaceAll('--', '-');
}

function readEntry(line: string): InventoryEntry | undefined {
  try {
    const value = parseJson(line).value as Readonly<Record<string, unknown>>;
    const text = (key: string): string => {
      const member = value[key];
      if (typeof member !== 'string') throw new Error(`${key} is missing`);
      return member;
    };
    return {
      group: text('group'),
      kind: text('kind'),
      namespace: text('namespace'),
      name: text('name'),
      uid: text('uid'),
      isAdopted: value['isAdopted'] === true,
    };
  } catch {
    // A user wrote it, or the inventory is empty.
    return undefined;
  }
}
