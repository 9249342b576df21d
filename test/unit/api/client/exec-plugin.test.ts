/** Tests commands that return credentials: their input, when they run, and which parts of their output are used. */
import assert from 'node:assert/strict';
import { chmodSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { execCredentials, type ExecConfig } from '../../../../api/client/exec-plugin.ts';
import { systemClock } from '../../../../api/machinery/clock.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

const directory = temporaryFolder();

const V1 = 'client.authentication.k8s.io/v1';
const V1BETA1 = 'client.authentication.k8s.io/v1beta1';
const CLUSTER = { server: 'https://api.example', 'certificate-authority-data': 'Y2E=', config: { audience: 'a' } };

/** A command that prints the file `answer` and saves its input to `info`. */
const command = join(directory, 'plugin');
writeFileSync(
  command,
  `#!/bin/sh\nprintf %s "$KUBERNETES_EXEC_INFO" > ${directory}/info\ncat ${directory}/answer\nexit \${CODE:-0}\n`,
);
chmodSync(command, 0o755);

const answer = (text: string | object): void =>
  writeFileSync(join(directory, 'answer'), typeof text === 'string' ? text : JSON.stringify(text));
const credential = (status: object, apiVersion = V1): object => ({ kind: 'ExecCredential', apiVersion, status });
const make = (config: Partial<ExecConfig> = {}, more: { interactive?: boolean; clock?: FakeClock } = {}) =>
  execCredentials({
    config: { apiVersion: V1, command, interactiveMode: 'Never', ...config },
    cluster: CLUSTER,
    clock: new FakeClock(),
    ...more,
  });
const input = (): unknown => JSON.parse(readFileSync(join(directory, 'info'), 'utf8'));

test('the command gets the cluster only if the configuration requests it', async () => {
  answer(credential({ token: 't' }));
  assert.deepEqual(await make().current(), { authorization: 'Bearer t' });
  assert.deepEqual(input(), { kind: 'ExecCredential', apiVersion: V1, spec: { interactive: false } });
  await make({ provideClusterInfo: true }).current();
  assert.deepEqual(input(), { kind: 'ExecCredential', apiVersion: V1, spec: { cluster: CLUSTER, interactive: false } });
});

test('a command with a slash is looked for beside the file that names it', async () => {
  answer(credential({ token: 't' }));
  const credentials = execCredentials({
    config: { apiVersion: V1, command: './plugin', interactiveMode: 'Never' },
    cluster: CLUSTER,
    kubeconfigPath: join(directory, 'config'),
    clock: new FakeClock(),
  });
  assert.deepEqual(await credentials.current(), { authorization: 'Bearer t' });
});

test('returned credentials are kept until they expire, or the server refuses them', async () => {
  const clock = new FakeClock();
  const credentials = make({}, { clock });
  answer(credential({ token: 'first', expirationTimestamp: new Date(clock.now() + 60_000).toISOString() }));
  assert.equal((await credentials.current()).authorization, 'Bearer first');
  answer(credential({ token: 'second' }));
  assert.equal((await credentials.current()).authorization, 'Bearer first');
  await clock.advance(60_000);
  assert.equal((await credentials.current()).authorization, 'Bearer second');
  answer(credential({ token: 'third' }));
  await clock.advance(1e9);
  assert.equal((await credentials.current()).authorization, 'Bearer second');
  credentials.refused?.();
  assert.equal((await credentials.current()).authorization, 'Bearer third');
});

for (const [mode, interactive, expected] of [
  ['Never', true, false],
  ['IfAvailable', true, true],
  ['IfAvailable', false, false],
  ['Always', true, true],
] as const) {
  test(`interactiveMode ${mode} ${interactive ? 'at' : 'without'} a terminal gives the command ${expected ? 'its' : 'no'} input`, async () => {
    answer(credential({ token: 't' }));
    await make({ interactiveMode: mode }, { interactive }).current();
    assert.deepEqual(input(), { kind: 'ExecCredential', apiVersion: V1, spec: { interactive: expected } });
  });
}

test('the older version does without an interactiveMode', async () => {
  answer(credential({ token: 't' }, V1BETA1));
  const config = { apiVersion: V1BETA1, command };
  const credentials = execCredentials({ config, cluster: CLUSTER, clock: new FakeClock(), interactive: false });
  assert.deepEqual(await credentials.current(), { authorization: 'Bearer t' });
});

for (const [why, config, reason] of [
  ['interactiveMode Always without a terminal', { interactiveMode: 'Always' }, /cannot support interactive mode/],
  ['no interactiveMode in v1', { interactiveMode: '' }, /interactiveMode must be specified/],
  ['an interactiveMode nobody knows', { interactiveMode: 'Sometimes' }, /invalid interactiveMode/],
  ['another version', { apiVersion: 'client.authentication.k8s.io/v1alpha1' }, /invalid apiVersion/],
  ['no command', { command: '' }, /command must be specified/],
] as const) {
  test(`a configuration with ${why} is refused before anything runs`, () => assert.throws(() => make(config), reason));
}

for (const [why, text, reason, config] of [
  ['no JSON', 'hello', /did not print an ExecCredential/, {}],
  ['another kind', { kind: 'Other', apiVersion: V1 }, /kind is "Other"/, {}],
  [
    'another version',
    credential({ token: 't' }, V1BETA1),
    /configured to use API version .*\/v1, plugin returned version .*\/v1beta1/,
    {},
  ],
  ['no status', { kind: 'ExecCredential', apiVersion: V1 }, /didn't return a status/, {}],
  ['nothing in it', credential({ token: '' }), /didn't return a token or cert\/key pair/, {}],
  ['a certificate without its key', credential({ clientCertificateData: 'c' }), /only certificate or key/, {}],
  ['a key without its certificate', credential({ clientKeyData: 'k' }), /only certificate or key/, {}],
  ['an end that is no time', credential({ token: 't', expirationTimestamp: 'soon' }), /is not an RFC 3339 time/, {}],
  ['a failure', credential({ token: 't' }), /failed with exit code 3/, { env: [{ name: 'CODE', value: '3' }] }],
] as const) {
  test(`an answer with ${why} counts for nothing`, async () => {
    answer(text);
    await assert.rejects(async () => make(config).current(), reason);
  });
}

test('a command that is missing is named, with the hint of how to get it', async () => {
  const missing = make({ command: 'no-such-plugin-here', installHint: 'get it there' });
  await assert.rejects(async () => missing.current(), /executable no-such-plugin-here not found[^]*get it there/);
});

test('a command that prints without an end, and does not care for signals to terminate, is killed', async () => {
  const endless = join(directory, 'endless');
  writeFileSync(endless, "#!/bin/sh\ntrap '' TERM\nwhile :; do echo more; done\n");
  chmodSync(endless, 0o755);
  await assert.rejects(async () => make({ command: endless }).current(), /printed more than 1048576 bytes/);
});

test('a command that nobody can answer and that does not exit is left after two minutes, and run again', async () => {
  const hanging = join(directory, 'hanging');
  writeFileSync(hanging, "#!/bin/sh\ntrap '' TERM\nexec sleep 1000\n");
  chmodSync(hanging, 0o755);
  const clock = new FakeClock();
  const credentials = make({ command: hanging }, { clock });
  for (let tries = 0; tries < 2; tries += 1) {
    const refused = assert.rejects(async () => credentials.current(), /did not exit within 120 s/);
    await clock.advance(120_000);
    await refused;
  }
});

test('a command gets the cluster and runs once until the server refuses; errors name what is missing', async () => {
  const script = `const i=JSON.parse(process.env.KUBERNETES_EXEC_INFO);console.log(JSON.stringify({kind:'ExecCredential',apiVersion:i.apiVersion,status:{token:i.spec.cluster.server+process.pid}}))`;
  const config = {
    apiVersion: 'client.authentication.k8s.io/v1',
    command: process.execPath,
    args: ['-e', script],
    interactiveMode: 'Never',
    provideClusterInfo: true,
  };
  const cluster = { server: 'https://h' };
  const credentials = execCredentials({ config, cluster, clock: systemClock });
  const first = await credentials.current();
  assert.match(first.authorization ?? '', /^Bearer https:\/\/h\d+$/);
  assert.deepEqual(await credentials.current(), first);
  assert.equal(credentials.refused?.(), true);
  assert.notDeepEqual(await credentials.current(), first);
  const missing = execCredentials({
    config: { ...config, command: 'no-such-plugin', installHint: 'get it' },
    cluster,
    clock: systemClock,
  });
  await assert.rejects(missing.current(), /executable no-such-plugin not found[\s\S]*get it/);
  assert.throws(
    () => execCredentials({ config: { ...config, interactiveMode: 'Always' }, cluster, clock: systemClock }),
    /interactive/,
  );
});
