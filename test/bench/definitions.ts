/**
 * Measures a cluster with as many definitions as a large set of operators has: 450 definitions of about 54 KiB each. It
 * measures memory, OpenAPI documents and the time that `kubectl` takes.
 */
import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import type { Print } from './bench.ts';
import type { Http } from './load.ts';
import { type Server, TOKEN } from './server.ts';

const DEFINITIONS = 450;
const GROUPS = 90;
/** The number of fields of each object of a schema. */
const FIELDS = 18;
const MIB = 1024 * 1024;
const CUSTOM_RESOURCES = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions';
const SETTLE_MS = 10_000;

const run = promisify(execFile);

type Schema = Record<string, unknown>;

/** Creates nested objects with described members of all types, like generators of schemas. */
function schemaOf(seed: number, depth: number): Schema {
  const properties: Record<string, Schema> = {};
  for (let at = 0; at < FIELDS; at += 1) {
    const description = `Member ${at} of the object, number ${seed}, at depth ${depth}. It says how the operator treats what it manages, and since when.`;
    properties[`member${at}`] = { description, ...memberOf(seed, depth, at) };
  }
  return { type: 'object', properties, required: ['member0'] };
}

function memberOf(seed: number, depth: number, at: number): Schema {
  if (depth > 0 && at < 2) return schemaOf(seed + at, depth - 1);
  if (at % 6 === 0) return { type: 'string', minLength: 1, maxLength: 253, pattern: '^[a-z0-9]([-a-z0-9]*[a-z0-9])?$' };
  if (at % 6 === 1) return { type: 'integer', format: 'int64', minimum: 0, default: at };
  if (at % 6 === 2) return { type: 'array', items: { type: 'string', enum: ['One', 'Two', 'Three'] } };
  if (at % 6 === 3) return { type: 'object', additionalProperties: { type: 'string' } };
  if (at % 6 === 4) return { 'x-kubernetes-int-or-string': true, anyOf: [{ type: 'integer' }, { type: 'string' }] };
  return { type: 'boolean', nullable: true };
}

function definition(at: number): object {
  const group = `group${at % GROUPS}.example.com`;
  const kind = `Kind${at}`;
  const plural = `${kind.toLowerCase()}s`;
  const spec = schemaOf(at, 3);
  const schema = { type: 'object', properties: { spec, status: { type: 'object', properties: {} } } };
  return {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: { name: `${plural}.${group}` },
    spec: {
      group,
      scope: 'Namespaced',
      names: { kind, plural, singular: kind.toLowerCase() },
      versions: [
        { name: 'v1', served: true, storage: true, schema: { openAPIV3Schema: schema }, subresources: { status: {} } },
      ],
    },
  };
}

/** Creates the definitions on the server, and measures it with them. */
export async function definitions(print: Print, server: Server, http: Http): Promise<void> {
  const bytes = JSON.stringify(definition(0)).length;
  print(`size of each of ${DEFINITIONS} definitions`, bytes / 1024, 'KiB');
  await http.many(DEFINITIONS, (at) => http.request('POST', CUSTOM_RESOURCES, definition(at)));
  const lastGroup = `group${(DEFINITIONS - 1) % GROUPS}.example.com`;
  while (!(await http.request('GET', '/apis')).includes(lastGroup)) await sleep(100);
  await sleep(SETTLE_MS);
  print('resident memory with all definitions', (await server.rssBytes()) / MIB, 'MiB');
  await server.facts();
  await kubectl(print, server);
  await documents(print, server, http);
}

async function timed(print: Print, what: string, work: () => Promise<unknown>): Promise<void> {
  const started = performance.now();
  await work();
  print(what, performance.now() - started, 'ms');
}

async function longest(print: Print, server: Server, what: string): Promise<void> {
  print(`processor time of a turn of the loop, longest, ${what}`, (await server.facts()).longestTurnCpuMs, 'ms');
}

/** Measures the first commands that a user runs. */
async function kubectl(print: Print, server: Server): Promise<void> {
  const directory = await mkdtemp(join(tmpdir(), 'orchlet-bench-kubectl-'));
  const manifest = join(directory, 'map.yaml');
  await writeFile(manifest, 'apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: first\ndata:\n  a: b\n');
  const flags = ['--server', server.origin, '--insecure-skip-tls-verify', '--token', TOKEN, '--cache-dir', directory];
  const command = (...args: readonly string[]): Promise<unknown> =>
    run('kubectl', [...flags, ...args], { maxBuffer: 1 << 26, env: { ...process.env, KUBECONFIG: '/dev/null' } });
  try {
    await timed(print, 'kubectl api-resources, first', () => command('api-resources'));
    await timed(print, 'kubectl explain of a custom resource, first', () => command('explain', 'kind7.spec'));
    await timed(print, 'kubectl apply, first', () => command('apply', '-f', manifest));
    await longest(print, server, 'during kubectl');
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

async function documents(print: Print, server: Server, http: Http): Promise<void> {
  const index = async (): Promise<string> => http.request('GET', '/openapi/v3');
  await timed(print, '/openapi/v3', index);
  const { paths } = JSON.parse(await index()) as { paths: Record<string, { serverRelativeURL: string }> };
  await timed(print, `all ${Object.keys(paths).length} documents of version 3`, async () => {
    for (const { serverRelativeURL } of Object.values(paths)) await http.request('GET', serverRelativeURL);
  });
  await longest(print, server, 'during version 3');
  await timed(print, '/openapi/v2, first', () => http.request('GET', '/openapi/v2'));
  await timed(print, '/openapi/v2, again', () => http.request('GET', '/openapi/v2'));
  await longest(print, server, 'during version 2');
  await timed(print, 'change of one definition', () =>
    http.request('DELETE', `${CUSTOM_RESOURCES}/kind0s.group0.example.com`),
  );
  await timed(print, '/openapi/v2, after the change', () => http.request('GET', '/openapi/v2'));
  await longest(print, server, 'during the change');
  await sleep(SETTLE_MS);
  print('resident memory after all documents were read', (await server.rssBytes()) / MIB, 'MiB');
}
