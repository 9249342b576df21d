/**
 * Laws of bodies and responses for one object of every built-in kind: JSON, YAML and protobuf bodies of one object have one
 * response, valid or not; an empty patch and an object that is written back as it was read change nothing in any encoding;
 * lists and watches have the object in every encoding.
 */
import assert from 'node:assert/strict';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { Agent, request } from 'node:https';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { createProtobufCodec } from '../../api/codec/protobuf.ts';
import { parseYaml, stringifyYaml } from '../../api/codec/yaml.ts';
import type { JsonObject, KubeObject } from '../../api/meta/object.ts';
import { loadSchema } from '../../api/schema/table.ts';
import { type ControlPlane, startControlPlane } from '../../controlplane/main.ts';
import { temporaryFolder } from '../temporary-folder.ts';

const NAMESPACE = 'encodings';
const TOKEN = 'encoding-laws-token';
const JSON_TYPE = 'application/json';
const YAML_TYPE = 'application/yaml';
const PROTOBUF_TYPE = 'application/vnd.kubernetes.protobuf';
const TABLE_TYPE = 'application/json;as=Table;v=v1;g=meta.k8s.io';
const PATCHES = [
  ['application/merge-patch+json', '{}'],
  ['application/json-patch+json', '[]'],
  ['application/strategic-merge-patch+json', '{}'],
] as const;

interface Sample {
  readonly path: string;
  readonly object: KubeObject;
}

interface Answer {
  readonly status: number;
  readonly body: Buffer;
}

const samples: readonly Sample[] = readFileSync(join(import.meta.dirname, '../hostile/one-of-each-kind.jsonl'), 'utf8')
  .trim()
  .split('\n')
  .map((line) => JSON.parse(line.replaceAll('etcdstoragepathtestnamespace', NAMESPACE)) as Sample);

const protobuf = createProtobufCodec(loadSchema());
const directory = temporaryFolder();
const agent = new Agent({ keepAlive: true, rejectUnauthorized: false });
let plane: ControlPlane;

interface Call {
  readonly body?: Buffer | string;
  readonly type?: string;
  readonly accept?: string;
  /** Ends the response when it contains this text. */
  readonly until?: string;
}

function call(method: string, path: string, { body, type, accept = JSON_TYPE, until }: Call = {}): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const headers = {
      authorization: `Bearer ${TOKEN}`,
      accept,
      ...(type === undefined ? {} : { 'content-type': type }),
    };
    const sent = request(`${plane.url}${path}`, { method, agent, headers }, (response) => {
      const chunks: Buffer[] = [];
      const answer = (): void => resolve({ status: response.statusCode ?? 0, body: Buffer.concat(chunks) });
      response.on('data', (chunk: Buffer) => {
        chunks.push(chunk);
        if (until === undefined || !Buffer.concat(chunks).includes(until)) return;
        answer();
        sent.destroy();
      });
      response.on('end', answer);
      response.on('error', () => answer());
    });
    sent.on('error', (error) => (until === undefined ? reject(error) : undefined));
    sent.end(body);
  });
}

before(async () => {
  writeFileSync(join(directory, 'tokens.csv'), `${TOKEN},laws,1,"system:masters"\n`);
  plane = await startControlPlane({
    memory: true,
    flags: { tokenAuthFile: join(directory, 'tokens.csv'), scheduler: false, controllers: [] },
  });
  const metadata = { name: NAMESPACE };
  await post('/api/v1/namespaces', { apiVersion: 'v1', kind: 'Namespace', metadata });
  await post(`/api/v1/namespaces/${NAMESPACE}/serviceaccounts`, {
    apiVersion: 'v1',
    kind: 'ServiceAccount',
    metadata: { name: 'default' },
  });
});

after(async () => {
  agent.destroy();
  await plane.close();
  rmSync(directory, { recursive: true, force: true });
});

const post = (path: string, object: object): Promise<Answer> =>
  call('POST', path, { body: JSON.stringify(object), type: JSON_TYPE });

/** Returns the body in each encoding. */
function bodies(object: KubeObject): readonly (readonly [type: string, body: Buffer | string])[] {
  return [
    [JSON_TYPE, JSON.stringify(object)],
    [YAML_TYPE, stringifyYaml(object)],
    [PROTOBUF_TYPE, protobuf.encodeEnveloped(object)],
  ];
}

/** Returns the response without what differs between two requests. */
function essence({ status, body }: Answer): unknown {
  const text = body
    .toString()
    .replaceAll(/"(uid|creationTimestamp|time|resourceVersion)":"[^"]*"/g, '"$1":"*"')
    .replaceAll(/"nodePort":\d+/g, '"nodePort":0')
    .replaceAll(/"10\.96\.\d+\.\d+"/g, '"*"')
    .replaceAll(/kube-api-access-\w+/g, '*')
    .replaceAll(/\\"(uid|creationTimestamp)\\":\\"[^"]*\\"/g, '*');
  return { status, body: JSON.parse(text) as unknown };
}

/** Returns a value without what is zero or empty, which a message has and JSON has not. */
function withoutZeros(value: unknown): unknown {
  if (value === '' || value === 0 || value === false || value === null) return undefined;
  if (typeof value !== 'object') return value;
  if (Array.isArray(value)) return value.length === 0 ? undefined : value.map(withoutZeros);
  const entries = Object.entries(value)
    .map(([name, inner]) => [name, withoutZeros(inner)] as const)
    .filter(([, inner]) => inner !== undefined);
  return entries.length === 0 ? undefined : Object.fromEntries(entries);
}

const versionOf = ({ body }: Answer): string | undefined =>
  (JSON.parse(body.toString()) as KubeObject).metadata.resourceVersion;

describe('for every kind', () => {
  for (const { path, object } of samples) {
    const named = `${path}/${object.metadata.name}`;
    const isServed = async (): Promise<boolean> => {
      const { status } = await post(path, object);
      return status !== 404 && status !== 405;
    };

    test(`${path}: bodies of one object have one response in every encoding`, async (context) => {
      if (!(await isServed())) return context.skip('the kind is not served by default');
      // In a message, an empty list is like none.
      const text = JSON.stringify(object, (_name, value: unknown) =>
        Array.isArray(value) && value.length === 0 ? undefined : value,
      );
      const given = JSON.parse(text) as KubeObject;
      const good = { ...given, metadata: { ...given.metadata, name: 'encoded' } };
      const bad = { ...good, metadata: { ...good.metadata, labels: { 'not a key': 'x' }, name: 'Not a Name' } };
      for (const each of [good, bad]) {
        const answers = [];
        for (const [type, body] of bodies(each))
          answers.push(essence(await call('POST', `${path}?dryRun=All&fieldManager=laws`, { type, body })));
        assert.deepEqual(answers[1], answers[0], 'YAML');
        assert.deepEqual(answers[2], answers[0], 'protobuf');
      }
      return undefined;
    });

    test(`${path}: what is read and written back, and an empty patch, change nothing`, async (context) => {
      if (!(await isServed())) return context.skip('the kind is not served by default');
      const read = await call('GET', named);
      if (read.status !== 200) return context.skip('the kind cannot be read');
      const version = versionOf(read);
      for (const type of [JSON_TYPE, YAML_TYPE, PROTOBUF_TYPE]) {
        const { body } = await call('GET', named, { accept: type });
        const written = await call('PUT', named, { type, body });
        if (written.status === 405) return context.skip('the kind cannot be updated');
        assert.equal(written.status, 200, `${type}: ${written.body.toString()}`);
        assert.equal(versionOf(written), version, type);
      }
      for (const [type, body] of PATCHES) {
        const patched = await call('PATCH', named, { type, body });
        assert.equal(patched.status, 200, `${type}: ${patched.body.toString()}`);
        assert.equal(versionOf(patched), version, type);
      }
      return undefined;
    });

    test(`${path}: lists and watches have the object in every encoding`, async (context) => {
      if (!(await isServed())) return context.skip('the kind is not served by default');
      const read = await call('GET', named);
      if (read.status !== 200) return context.skip('the kind cannot be read');
      const wanted = JSON.parse(read.body.toString()) as JsonObject;
      const yaml = await call('GET', named, { accept: YAML_TYPE });
      assert.deepEqual(parseYaml(yaml.body).value, wanted);
      const message = await call('GET', named, { accept: PROTOBUF_TYPE });
      assert.deepEqual(withoutZeros(protobuf.decode(message.body)), withoutZeros(wanted));
      const { name = '' } = object.metadata;
      for (const accept of [JSON_TYPE, YAML_TYPE, PROTOBUF_TYPE, TABLE_TYPE]) {
        const list = await call('GET', path, { accept });
        assert.equal(list.status, 200, accept);
        assert.ok(list.body.includes(name), accept);
        if (accept === YAML_TYPE) continue;
        const seen = await call('GET', `${path}?watch=1&timeoutSeconds=10`, { accept, until: name });
        assert.equal(seen.status, 200, accept);
        assert.ok(seen.body.includes(name), `watch: ${accept}`);
      }
      return undefined;
    });
  }
});
