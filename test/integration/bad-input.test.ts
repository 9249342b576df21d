/**
 * Sends hostile requests to a running control plane. Each gets the expected response, the process keeps running, no JavaScript
 * prototype changes, and valid data is stored exactly.
 */
import assert from 'node:assert/strict';
import { rmSync, writeFileSync } from 'node:fs';
import { Agent } from 'node:https';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { parseYaml } from '../../api/codec/yaml.ts';
import { type ControlPlane, startControlPlane } from '../../controlplane/main.ts';
import { hostileRequests, MAPS, PREPARED, WILDS } from '../hostile/requests.ts';
import { send, type Answer, type Connection } from '../hostile/send.ts';
import { until } from '../until.ts';
import { temporaryFolder } from '../temporary-folder.ts';

const TOKEN = 'hostile-token';
const directory = temporaryFolder();
const agent = new Agent({ keepAlive: true, rejectUnauthorized: false });
let plane: ControlPlane;
let connection: Connection;

const sendJson = (method: 'GET' | 'POST' | 'PUT' | 'PATCH', path: string, body?: string, type = 'application/json') =>
  send(connection, { method, path, type, ...(body === undefined ? {} : { body: () => body }) });

before(async () => {
  writeFileSync(join(directory, 'tokens.csv'), `${TOKEN},hostile,1,"system:masters"\n`);
  plane = await startControlPlane({
    memory: true,
    flags: { tokenAuthFile: join(directory, 'tokens.csv'), scheduler: false },
  });
  connection = { origin: plane.url, agent, token: TOKEN };
  for (const { path, body } of PREPARED) {
    await until(`a place for ${path}`, async () => {
      const { status } = await sendJson('POST', path, JSON.stringify(body));
      return status === 201 ? true : undefined;
    });
  }
});

after(async () => {
  agent.destroy();
  await plane.close();
  rmSync(directory, { recursive: true, force: true });
});

const prototypeKeys = Reflect.ownKeys(Object.prototype).length;
const isStatus = ({ text }: Answer): boolean => /"kind":\s*"Status"/.test(text);

describe('a hostile request', () => {
  for (const wanted of hostileRequests) {
    test(wanted.name, async () => {
      const answer = await send(connection, wanted);
      const expected = [wanted.status].flat();
      assert.ok(expected.includes(answer.status), `${answer.status}: ${answer.text.slice(0, 500)}`);
      if (wanted.message !== undefined) assert.match(answer.text, wanted.message);
      // Paths without a resource get a response in plain text.
      if (answer.status >= 400 && answer.status !== 404) assert.ok(isStatus(answer), answer.text.slice(0, 200));
      assert.equal(Reflect.ownKeys(Object.prototype).length, prototypeKeys, 'the prototype of all is polluted');
      assert.equal((await sendJson('GET', '/readyz')).status, 200);
    });
  }
});

test('integers of 64 bits stay as they are: in a custom resource, through each patch, and where the type is an integer', async () => {
  const least = '-9223372036854775808';
  const most = '9223372036854775807';
  const wild = (rest: string): string =>
    `{"apiVersion":"hostile.example.com/v1","kind":"Wild","metadata":{"name":"exact"},${rest}}`;
  const made = await sendJson('POST', WILDS, wild(`"number":${most},"free":{"a":[${least}]}`));
  assert.equal(made.status, 201, made.text);
  const path = `${WILDS}/exact`;
  for (const [type, body] of [
    ['application/merge-patch+json', `{"merged":${most}}`],
    ['application/json-patch+json', `[{"op":"add","path":"/added","value":${least}}]`],
    ['application/apply-patch+yaml', wild(`"applied":${most}`)],
  ] as const) {
    const patched = await sendJson('PATCH', `${path}?fieldManager=exact`, body, type);
    assert.ok(patched.status < 300, `${type}: ${patched.text}`);
  }
  const { text } = await sendJson('GET', path);
  for (const field of [
    `"number":${most}`,
    `"a":[${least}]`,
    `"merged":${most}`,
    `"added":${least}`,
    `"applied":${most}`,
  ]) {
    assert.ok(text.includes(field), `${field} is not in ${text}`);
  }
  const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"exact"},"spec":{"containers":[{"name":"c","image":"i"}],"securityContext":{"runAsUser":2147483647},"activeDeadlineSeconds":${most}}}`;
  const refused = await sendJson('POST', '/api/v1/namespaces/default/pods', pod);
  assert.equal(refused.status, 422);
  assert.ok(refused.text.includes(most), refused.text);
});

test('__proto__ and constructor are ordinary names: as keys of data, in patches, in custom resources', async () => {
  const data = '{"__proto__":"a","constructor":"b","toString":"c"}';
  const map = await sendJson(
    'POST',
    MAPS,
    `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"proto"},"data":${data}}`,
  );
  assert.equal(map.status, 201, map.text);
  const kept = (text: string, field: string): unknown =>
    Object.entries(JSON.parse(text) as Record<string, object>).find(([key]) => key === field)?.[1];
  const entries = (text: string): unknown => Object.entries(kept(text, 'data') ?? {}).toSorted();
  const wanted = [
    ['__proto__', 'a'],
    ['constructor', 'b'],
    ['toString', 'c'],
  ];
  assert.deepEqual(entries((await sendJson('GET', `${MAPS}/proto`)).text), wanted);
  for (const [type, body] of [
    ['application/merge-patch+json', '{"data":{"__proto__":"d"}}'],
    ['application/strategic-merge-patch+json', '{"data":{"__proto__":"d"}}'],
    ['application/json-patch+json', '[{"op":"replace","path":"/data/__proto__","value":"d"}]'],
    ['application/apply-patch+yaml', 'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: proto}\ndata: {__proto__: d}'],
  ] as const) {
    await sendJson('PATCH', `${MAPS}/proto`, '{"data":{"__proto__":"a"}}', 'application/merge-patch+json');
    const patched = await sendJson(
      'PATCH',
      `${MAPS}/proto?fieldManager=m${type === 'application/apply-patch+yaml' ? '&force=true' : ''}`,
      body,
      type,
    );
    assert.equal(patched.status, 200, `${type}: ${patched.text}`);
    assert.deepEqual(
      entries((await sendJson('GET', `${MAPS}/proto`)).text),
      [['__proto__', 'd'], ...wanted.slice(1)],
      type,
    );
  }
});

test('bytes that are not valid UTF-8 are stored as the replacement character', async () => {
  const { text } = await sendJson('GET', `${MAPS}/utf8`);
  assert.match((JSON.parse(text) as { data: { a: string } }).data.a, /^\ufffd+$/);
});

test('patches cannot make an object exceed the size limit', async () => {
  const name = 'growing';
  const made = await sendJson(
    'POST',
    WILDS,
    `{"apiVersion":"hostile.example.com/v1","kind":"Wild","metadata":{"name":"${name}"}}`,
  );
  assert.equal(made.status, 201);
  const part = 'x'.repeat(1_400_000);
  const statuses: number[] = [];
  let last = '';
  for (const field of ['a', 'b', 'c']) {
    const answer = await sendJson(
      'PATCH',
      `${WILDS}/${name}`,
      `{"${field}":"${part}"}`,
      'application/merge-patch+json',
    );
    statuses.push(answer.status);
    last = answer.text;
  }
  assert.deepEqual(statuses, [200, 200, 413]);
  assert.match(last, /request is too large/);
  const { text } = await sendJson('GET', `${WILDS}/${name}`);
  assert.ok(text.includes('"b":"x') && !text.includes('"c":"x'));
});

/** Returns the processor time of this thread in milliseconds, so that other processes do not count. */
const usedMs = (): number => {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
};

/** Returns the processor time of `work`, and its maximum between two turns of the event loop. */
async function turnsOf(work: () => Promise<unknown>): Promise<{ readonly longestMs: number; readonly allMs: number }> {
  const from = usedMs();
  let last = from;
  let longestMs = 0;
  let isDone = false;
  const turn = (): void => {
    const now = usedMs();
    longestMs = Math.max(longestMs, now - last);
    last = now;
    if (!isDone) setTimeout(turn, 0);
  };
  setTimeout(turn, 0);
  await work();
  isDone = true;
  turn();
  return { longestMs, allMs: last - from };
}

for (const name of ['as many fields of a custom resource as fit'])
  test(`others get the event loop between the steps of a write: ${name}`, async () => {
    const hostile = hostileRequests.find((one) => one.name === name);
    assert.ok(hostile !== undefined);
    const text = hostile.body?.() ?? '';
    // The first attempt also compiles functions.
    for (const attempt of ['first', 'second']) {
      const { longestMs, allMs } = await turnsOf(() => send(connection, { ...hostile, body: () => text }));
      if (attempt === 'second') assert.ok(longestMs < allMs / 4, `${longestMs} of ${allMs} ms`);
    }
  });

test('other requests are served while a large YAML body is parsed', async () => {
  const text = `apiVersion: v1\nkind: ConfigMap\nmetadata: {name: large}\ndata: {a: [${'[],'.repeat(700_000)}]}\n`;
  const from = usedMs();
  assert.throws(() => parseYaml(text), /exceeded the limit/);
  const parseMs = usedMs() - from;
  for (const [method, type] of [
    ['POST', 'application/yaml'],
    ['PATCH', 'application/apply-patch+yaml'],
    ['DELETE', 'application/yaml'],
  ] as const) {
    const path = `/api/v1/namespaces/default/configmaps${method === 'POST' ? '' : '/large?fieldManager=m'}`;
    const request = { method, path, type, body: () => text };
    const { longestMs } = await turnsOf(() => send(connection, request));
    // A body that is parsed in the event loop takes one turn as long as the whole parse.
    assert.ok(longestMs < parseMs / 2, `${method}: ${longestMs} of ${parseMs} ms`);
  }
});

test('other requests are served while a long list is indented or written as YAML', async () => {
  const data = Object.fromEntries(Array.from({ length: 2_000 }, (_, at) => [`key-${at}`, `value ${at}`]));
  const path = '/api/v1/namespaces/kube-public/configmaps';
  for (let at = 0; at < 60; at += 1) {
    const body = JSON.stringify({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: `long-${at}` }, data });
    assert.equal((await sendJson('POST', path, body)).status, 201);
  }
  for (const [query, accept] of [
    ['?pretty=true', 'application/json'],
    ['', 'application/yaml'],
  ] as const) {
    const request = { method: 'GET', path: `${path}${query}`, accept } as const;
    const { longestMs, allMs } = await turnsOf(() => send(connection, request));
    assert.ok(longestMs < allMs / 4, `${accept}: ${longestMs} of ${allMs} ms`);
  }
});
