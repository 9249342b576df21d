import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { chmod, mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import type { Pod } from '../../../../../agent/base/model/pod.ts';
import { readCredentialProviders } from '../../../../../agent/runtime/images/credential-provider-config.ts';
import { CredentialProviders } from '../../../../../agent/runtime/images/credential-providers.ts';
import { matchesImage } from '../../../../../agent/runtime/images/image-match.ts';
import { credentialProviderMetrics } from '../../../../../agent/resources/statistics/pull-metrics.ts';
import { MetricsRegistry } from '../../../../../api/component/metrics.ts';
import { silentLogger, type Logger } from '../../../../../api/component/logger.ts';
import { serviceAccounts } from '../../../../../api/client/resources.ts';
import type { KubeObject } from '../../../../../api/meta/object.ts';
import { FakeClient } from '../../../../fakes/fake-client.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';
import { until } from '../../../../until.ts';

const V1 = 'credentialprovider.kubelet.k8s.io/v1';

/** A plugin that writes its request to a file in its directory, and responds with the content of another file. */
const PLUGIN = `#!/bin/sh
here=$(dirname "$0")
cat > "$here/request"
echo "$* $GREETING" >> "$here/runs"
cat "$here/answer"
echo "what went wrong" >&2
exit "$(cat "$here/exit" 2>/dev/null || echo 0)"
`;

const podOf = (name: string, serviceAccountName = ''): Pod => ({
  metadata: { name, namespace: 'ns', uid: `uid-${name}` },
  spec: { containers: [], serviceAccountName },
});

function yamlOf(provider: object): string {
  return JSON.stringify({
    apiVersion: 'kubelet.config.k8s.io/v1',
    kind: 'CredentialProviderConfig',
    providers: [
      { name: 'plugin', apiVersion: V1, matchImages: ['*.example.com'], defaultCacheDuration: '10m', ...provider },
    ],
  });
}

async function setUp(provider: object = {}) {
  const directory = temporaryFolder();
  const bin = join(directory, 'bin');
  await mkdir(bin);
  await writeFile(join(bin, 'plugin'), PLUGIN);
  await chmod(join(bin, 'plugin'), 0o755);
  const config = join(directory, 'config.yaml');
  await writeFile(config, yamlOf(provider));
  const clock = new FakeClock();
  const client = new FakeClient(clock);
  const problems: string[] = [];
  const logger: Logger = {
    ...silentLogger,
    error: (fields) => void problems.push(String((fields as { err?: Error }).err?.message)),
  };
  const metrics = new MetricsRegistry();
  const { providers: configured, hash } = await readCredentialProviders(config);
  const providers = new CredentialProviders({
    providers: configured,
    observe: credentialProviderMetrics(metrics, hash),
    binDirectory: bin,
    client,
    token: async (pod, audience) => `token of ${pod.metadata.name} for ${audience}`,
    clock,
    logger,
  });
  await providers.check();
  const answer = (response: object): Promise<void> =>
    writeFile(
      join(bin, 'answer'),
      JSON.stringify({ apiVersion: V1, kind: 'CredentialProviderResponse', cacheKeyType: 'Image', ...response }),
    );
  await answer({ auth: { 'reg.example.com': { username: 'u', password: 'p' } } });
  const runs = async (): Promise<number> =>
    (await readFile(join(bin, 'runs'), 'utf8').catch(() => '')).split('\n').length - 1;
  return { bin, clock, client, providers, answer, runs, problems, metrics };
}

describe('a pattern of credentials', () => {
  const table: [string, string, boolean][] = [
    ['reg.example.com', 'reg.example.com/a/b', true],
    ['*.example.com', 'reg.example.com/a', true],
    ['*.example.com', 'a.reg.example.com/a', false],
    ['*.*.example.com', 'a.reg.example.com/a', true],
    ['*.com', 'reg.example.com/a', false],
    ['r?g.example.com', 'reg.example.com/a', true],
    ['r[aeiou]g.example.com', 'reg.example.com/a', true],
    ['r[^aeiou]g.example.com', 'reg.example.com/a', false],
    ['reg.example.com:5000', 'reg.example.com:5000/a', true],
    ['reg.example.com:5000', 'reg.example.com/a', false],
    ['reg.example.com', 'reg.example.com:5000/a', false],
    ['*.example.com:5000/team', 'reg.example.com:5000/team/app', true],
    ['*.example.com:5000/team', 'reg.example.com:5000/other', false],
    ['https://reg.example.com/team', 'reg.example.com/team/app', true],
    ['reg.example.com/te*', 'reg.example.com/team', false],
    ['127.0.0.1:5000', '127.0.0.1:5000/a', true],
    ['', 'reg.example.com/a', false],
  ];
  for (const [pattern, image, expected] of table)
    it(`${JSON.stringify(pattern)} ${expected ? 'speaks' : 'does not speak'} of ${image}`, () =>
      assert.equal(matchesImage(pattern, image), expected));
});

describe('a credential provider plugin', () => {
  it('gets the image without its tag, with its arguments and environment, and returns credentials', async () => {
    const { providers, bin } = await setUp({ args: ['get', 'it'], env: [{ name: 'GREETING', value: 'hello' }] });
    assert.deepEqual(await providers.credentials('reg.example.com/team/app:1', podOf('p')), [
      {
        auth: { username: 'u', password: 'p', serverAddress: 'reg.example.com' },
        source: undefined,
        hash: 'edbd57ca9372e64eb1c9070ecf3a049ac553596b0529acf034c7a71d4e618e88',
      },
    ]);
    assert.deepEqual(JSON.parse(await readFile(join(bin, 'request'), 'utf8')), {
      kind: 'CredentialProviderRequest',
      apiVersion: V1,
      image: 'reg.example.com/team/app',
    });
    assert.equal(await readFile(join(bin, 'runs'), 'utf8'), 'get it hello\n');
  });

  it('is measured by name, with its failures', async () => {
    const { providers, bin, metrics } = await setUp();
    await providers.credentials('reg.example.com/a', podOf('p'));
    await writeFile(join(bin, 'exit'), '1');
    await providers.credentials('reg.example.com/b', podOf('p'));
    const page = metrics.text();
    assert.match(page, /^kubelet_credential_provider_plugin_duration_count\{plugin_name="plugin"\} 2$/m);
    assert.match(page, /^kubelet_credential_provider_plugin_errors_total\{plugin_name="plugin"\} 1$/m);
    assert.match(page, /^kubelet_credential_provider_config_info\{hash="sha256:[0-9a-f]{64}"\} 1$/m);
  });

  it('is not called for images that it does not match', async () => {
    const { providers, runs } = await setUp();
    assert.deepEqual(await providers.credentials('app:1', podOf('p')), []);
    assert.equal(await runs(), 0);
  });

  it('returns only credentials that match the image, the most specific first', async () => {
    const { providers, answer } = await setUp();
    const auth = (username: string): object => ({ username, password: 'p' });
    await answer({
      auth: {
        'reg.example.com': auth('registry'),
        'reg.example.com/team': auth('team'),
        'other.example.com': auth('other'),
      },
    });
    const found = await providers.credentials('reg.example.com/team/app', podOf('p'));
    assert.deepEqual(
      found.map(({ auth }) => auth.username),
      ['team', 'registry'],
    );
  });

  const scopes: [string, number][] = [
    ['Image', 3],
    ['Registry', 2],
    ['Global', 1],
  ];
  for (const [cacheKeyType, expected] of scopes) {
    it(`is cached for the scope that it names: ${cacheKeyType}`, async () => {
      const { providers, answer, runs } = await setUp();
      await answer({ cacheKeyType, auth: {} });
      for (const image of ['a.example.com/one', 'a.example.com/one', 'a.example.com/two', 'b.example.com/one'])
        await providers.credentials(image, podOf('p'));
      assert.equal(await runs(), expected);
    });
  }

  it('is called again when its response has expired: by its own duration, else by the default', async () => {
    const { providers, answer, runs, clock } = await setUp();
    const ask = (): Promise<unknown> => providers.credentials('reg.example.com/app', podOf('p'));
    await answer({ cacheDuration: '1m' });
    await ask();
    await clock.advance(59_000);
    await ask();
    assert.equal(await runs(), 1);
    await answer({});
    await clock.advance(2_000);
    await ask();
    assert.equal(await runs(), 2);
    await clock.advance(599_000);
    await ask();
    assert.equal(await runs(), 2);
    await answer({ cacheDuration: '0s' });
    await clock.advance(2_000);
    await ask();
    await ask();
    assert.equal(await runs(), 4);
  });

  it('is called once for concurrent requests of one image', async () => {
    const { providers, runs } = await setUp();
    await Promise.all(['p', 'q', 'r'].map((name) => providers.credentials('reg.example.com/app', podOf(name))));
    assert.equal(await runs(), 1);
  });

  const failures: [string, object, string, RegExp][] = [
    [
      'another version',
      { apiVersion: 'credentialprovider.kubelet.k8s.io/v1beta1' },
      '0',
      /did not match expected apiVersion/,
    ],
    ['another kind', { kind: 'Pod' }, '0', /error decoding credential provider plugin response/],
    ['no key type', { cacheKeyType: 'Never' }, '0', /did not return a valid cacheKeyType: "Never"/],
    ['a megabyte as its version', { apiVersion: 'v'.repeat(1 << 19) }, '0', /actual apiVersion:v{256}$/],
    ['a key type that is nested', { cacheKeyType: { toString: [[]] } }, '0', /valid cacheKeyType: ""/],
    ['passwords that are none', { auth: { x: { username: 1 } } }, '0', /error decoding/],
    [
      'a failure',
      {},
      '3',
      /error execing credential provider plugin plugin for image reg\.example\.com\/app: exit status 3: what went wrong/,
    ],
  ];
  for (const [what, response, exit, message] of failures) {
    it(`that answers with ${what} yields no credentials, and the reason is logged`, async () => {
      const { providers, answer, bin, problems } = await setUp();
      await answer(response);
      await writeFile(join(bin, 'exit'), exit);
      assert.deepEqual(await providers.credentials('reg.example.com/app', podOf('p')), []);
      assert.match(problems.join(), message);
    });
  }

  it('that does not exit is left after a minute, though another process has its output open', async (t) => {
    const { clock, providers, bin, problems } = await setUp();
    await writeFile(join(bin, 'plugin'), '#!/bin/sh\nsleep 300 &\necho $! > "$0.pid"\nwait\n');
    const found = providers.credentials('reg.example.com/app', podOf('p'));
    const pid = await until(
      'the process',
      async () => Number(await readFile(join(bin, 'plugin.pid'), 'utf8')) || undefined,
    );
    t.after(() => process.kill(pid));
    await clock.advance(60_000);
    assert.deepEqual(await found, []);
    assert.match(problems.join(), /plugin for image reg\.example\.com\/app: did not exit within 60 s/);
  });

  const tokenAttributes = {
    serviceAccountTokenAudience: 'registry',
    cacheType: 'ServiceAccount',
    requireServiceAccount: true,
    requiredServiceAccountAnnotationKeys: ['example.com/role'],
    optionalServiceAccountAnnotationKeys: ['example.com/region'],
  };
  const account = (annotations: object): KubeObject =>
    ({ metadata: { name: 'robot', namespace: 'ns', uid: 'sa', annotations } }) as unknown as KubeObject;

  it('gets a token of the service account and the annotations that it requires', async () => {
    const { providers, client, bin } = await setUp({ tokenAttributes });
    client.seed(serviceAccounts, account({ 'example.com/role': 'reader', 'example.com/region': 'eu', other: 'x' }));
    assert.deepEqual(
      (await providers.credentials('reg.example.com/app', podOf('p', 'robot'))).map(({ source }) => source),
      [{ kind: 'serviceAccount', uid: 'sa', namespace: 'ns', name: 'robot' }],
    );
    assert.deepEqual(JSON.parse(await readFile(join(bin, 'request'), 'utf8')), {
      kind: 'CredentialProviderRequest',
      apiVersion: V1,
      image: 'reg.example.com/app',
      serviceAccountToken: 'token of p for registry',
      serviceAccountAnnotations: { 'example.com/role': 'reader', 'example.com/region': 'eu' },
    });
  });

  it('is not called for pods without a service account or without its required annotations', async () => {
    const { providers, client, runs, problems } = await setUp({ tokenAttributes });
    client.seed(serviceAccounts, account({}));
    assert.deepEqual(await providers.credentials('reg.example.com/app', podOf('p', 'robot')), []);
    assert.deepEqual(await providers.credentials('reg.example.com/app', podOf('static')), []);
    assert.equal(await runs(), 0);
    assert.deepEqual(problems, []);
  });

  for (const [cacheType, expected] of [
    ['ServiceAccount', 1],
    ['Token', 2],
  ] as const) {
    it(`is remembered for the ${cacheType}`, async () => {
      const { providers, client, runs } = await setUp({ tokenAttributes: { ...tokenAttributes, cacheType } });
      client.seed(serviceAccounts, account({ 'example.com/role': 'reader' }));
      for (const name of ['p', 'q']) await providers.credentials('reg.example.com/app', podOf(name, 'robot'));
      assert.equal(await runs(), expected);
    });
  }
});

describe('the configuration of credential providers', () => {
  async function read(files: Readonly<Record<string, string>>, path = '') {
    const directory = temporaryFolder();
    for (const [name, text] of Object.entries(files)) await writeFile(join(directory, name), text);
    return readCredentialProviders(join(directory, path));
  }

  it('may be a directory of files, read in order', async () => {
    const found = await read({
      'b.yaml': yamlOf({ name: 'second' }),
      'a.json': yamlOf({ name: 'first' }),
      'c.txt': 'not read',
    });
    assert.deepEqual(
      found.providers.map(({ name }) => name),
      ['first', 'second'],
    );
  });

  it('has the hash that the kubelet shows of it: of each file, its length before it', async () => {
    const { hash } = await read({ 'a.yaml': yamlOf({ name: 'first' }), 'b.yaml': yamlOf({ name: 'second' }) });
    const expected = createHash('sha256');
    for (const text of [yamlOf({ name: 'first' }), yamlOf({ name: 'second' })])
      expected.update(Buffer.from(text.length.toString(16).padStart(16, '0'), 'hex')).update(text);
    assert.equal(hash, `sha256:${expected.digest('hex')}`);
  });

  const mistakes: [string, object, RegExp][] = [
    ['an unknown field', { matchImage: [] }, /config\.yaml: providers\[0\]: unknown field "matchImage"/],
    ['a path for a name', { name: '../x' }, /providers\[0\]\.name: "\.\.\/x" must be the name of a file/],
    ['no images', { matchImages: [] }, /at least 1 item in matchImages is required/],
    ['an image pattern that is none', { matchImages: ['/path'] }, /"\/path": match image is invalid/],
    ['no duration', { defaultCacheDuration: undefined }, /defaultCacheDuration: is required/],
    ['a negative duration', { defaultCacheDuration: '-1s' }, /must be greater than or equal to 0/],
    [
      'a foreign version',
      { apiVersion: 'v1' },
      /apiVersion: "v1" is not one of credentialprovider\.kubelet\.k8s\.io\/v1/,
    ],
    [
      'a token without an audience',
      { tokenAttributes: { requireServiceAccount: true, cacheType: 'Token' } },
      /serviceAccountTokenAudience: is required/,
    ],
    [
      'a token without a kind of cache',
      { tokenAttributes: { serviceAccountTokenAudience: 'a', requireServiceAccount: true } },
      /cacheType: is required/,
    ],
    [
      'annotations of an account that need not be there',
      {
        tokenAttributes: {
          serviceAccountTokenAudience: 'a',
          cacheType: 'Token',
          requireServiceAccount: false,
          requiredServiceAccountAnnotationKeys: ['a'],
        },
      },
      /requireServiceAccount cannot be false when requiredServiceAccountAnnotationKeys is set/,
    ],
  ];
  for (const [what, provider, message] of mistakes) {
    it(`is refused with ${what}`, () =>
      assert.rejects(read({ 'config.yaml': yamlOf(provider) }, 'config.yaml'), {
        name: 'ConfigurationError',
        message,
      }));
  }

  it('is refused with one name twice, another kind, or no file at all', async () => {
    await assert.rejects(read({ 'a.yaml': yamlOf({}), 'b.yaml': yamlOf({}) }), /duplicate provider name "plugin"/);
    await assert.rejects(read({ 'a.yaml': '{kind: Pod, apiVersion: v1}' }), /must be a CredentialProviderConfig/);
    await assert.rejects(read({}), /there is no \.json, \.yaml or \.yml file/);
    await assert.rejects(read({}, 'gone'), /gone cannot be read/);
  });

  it('is refused where the program is missing', async () => {
    const { providers, bin } = await setUp();
    await rm(join(bin, 'plugin'));
    await assert.rejects(providers.check(), { name: 'ConfigurationError', message: /bin\/plugin did not exist/ });
  });
});
