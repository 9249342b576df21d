/**
 * Uses names that every JavaScript object inherits (`constructor`, `__proto__`) as text in any field and as key in any map,
 * where a look-up in a plain object would find a function. For one object of each kind, each text is replaced in turn.
 */
import assert from 'node:assert/strict';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { Agent } from 'node:https';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import type { JsonObject, JsonValue } from '../../api/meta/object.ts';
import { loadSchema } from '../../api/schema/table.ts';
import { type ControlPlane, startControlPlane } from '../../controlplane/main.ts';
import { generateObject } from '../fakes/generated-object.ts';
import { send, type Answer, type Connection } from '../hostile/send.ts';
import { temporaryFolder } from '../temporary-folder.ts';

const NAMES = ['constructor', '__proto__', 'toString'] as const;
const NAMESPACE = 'inherited';
const TOKEN = 'inherited-names-token';
const GENERATED = 40;

interface Sample {
  readonly path: string;
  readonly object: JsonObject;
}

const samples: readonly Sample[] = readFileSync(join(import.meta.dirname, '../hostile/one-of-each-kind.jsonl'), 'utf8')
  .trim()
  .split('\n')
  .map((line) => JSON.parse(line.replaceAll('etcdstoragepathtestnamespace', NAMESPACE)) as Sample);

const directory = temporaryFolder();
const agent = new Agent({ keepAlive: true, rejectUnauthorized: false });
let plane: ControlPlane;
let connection: Connection;

const create = (path: string, body: string): Promise<Answer> =>
  send(connection, { method: 'POST', path: `${path}?dryRun=All`, type: 'application/json', body: () => body });

before(async () => {
  writeFileSync(join(directory, 'tokens.csv'), `${TOKEN},hostile,1,"system:masters"\n`);
  plane = await startControlPlane({
    memory: true,
    flags: { tokenAuthFile: join(directory, 'tokens.csv'), scheduler: false, controllers: [] },
  });
  connection = { origin: plane.url, agent, token: TOKEN };
  for (const [path, object] of [
    ['/api/v1/namespaces', { apiVersion: 'v1', kind: 'Namespace', metadata: { name: NAMESPACE } }],
    [
      `/api/v1/namespaces/${NAMESPACE}/serviceaccounts`,
      { apiVersion: 'v1', kind: 'ServiceAccount', metadata: { name: 'default' } },
    ],
  ] as const) {
    const { status } = await send(connection, { method: 'POST', path, body: () => JSON.stringify(object) });
    assert.equal(status, 201);
  }
});

after(async () => {
  agent.destroy();
  await plane.close();
  rmSync(directory, { recursive: true, force: true });
});

/** Yields the object with one text or one key replaced, for each text and each map of texts. */
function* replaced(value: JsonValue, name: string, top = true): Generator<JsonValue> {
  if (typeof value === 'string') yield name;
  if (Array.isArray(value)) {
    for (const [index, item] of value.entries())
      for (const other of replaced(item, name, false)) yield value.with(index, other);
  } else if (typeof value === 'object' && value !== null) {
    const members = Object.entries(value);
    for (const [key, inner] of members) {
      // With another kind, the whole object would be refused.
      if (top && (key === 'kind' || key === 'apiVersion')) continue;
      if (inner === undefined) continue;
      for (const other of replaced(inner, name, false)) yield { ...value, [key]: other };
    }
    if (!top && members.length > 0) yield Object.fromEntries([...members, [name, members[0]?.[1]]]) as JsonObject;
  }
}

/**
 * Returns a generated object in which all texts and all keys of maps are such names. It has deeply nested fields that samples
 * lack.
 */
function named(value: JsonValue | undefined, next: () => string): JsonValue | undefined {
  if (typeof value === 'string') return next();
  if (Array.isArray(value)) return value.map((item) => named(item, next) ?? null);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, inner]) => [
      /\d$/.test(key) && !/^v\d/.test(key) ? next() : key,
      named(inner, next),
    ]),
  ) as JsonObject;
}

const exact = (_key: string, value: unknown): unknown => (typeof value === 'bigint' ? Number(value) : value);

function assertContained({ status, text }: Answer, body: string): void {
  assert.ok(status < 500 && text.startsWith('{'), `${status}: ${text.slice(0, 300)} to ${body.slice(0, 1000)}`);
  assert.doesNotMatch(text, /native code|\[object Object\]/, body.slice(0, 1000));
}

test('one object of each kind is a sample', () => {
  assert.ok(samples.length >= 59, `${samples.length}`);
});

for (const { path, object } of samples) {
  test(`${String(object['apiVersion'])} ${String(object['kind'])} with an inherited name in each place gets an answer`, async () => {
    let sent = 0;
    for (const name of NAMES)
      for (const other of replaced(object, name)) {
        const body = JSON.stringify(other);
        assertContained(await create(path, body), body);
        sent += 1;
      }
    const [group = '', version = ''] = String(object['apiVersion']).includes('/')
      ? String(object['apiVersion']).split('/')
      : ['', String(object['apiVersion'])];
    const struct = loadSchema().kind(group, version, String(object['kind']));
    for (let seed = 1; struct !== undefined && seed <= GENERATED; seed += 1) {
      let at = seed;
      const next = (): string => NAMES[at++ % NAMES.length] ?? '';
      const generated = named(generateObject(struct, seed), next) as JsonObject;
      const { apiVersion, kind, metadata } = object;
      const body = JSON.stringify({ ...generated, apiVersion, kind, metadata }, exact);
      assertContained(await create(path, body), body);
      sent += 1;
    }
    assert.ok(sent > GENERATED);
  });
}
