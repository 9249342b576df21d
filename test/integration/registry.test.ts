/**
 * Tests pulls from a private registry with a password (Debian's docker-registry) on both runtimes: events and statuses, pull
 * secrets, credential provider plugins, and digests.
 */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import Docker from 'dockerode';
import { dockerSocket, skipWithoutContainerd, skipWithoutDocker } from './container-runtimes.ts';
import { freePort } from './free-port.ts';
import { RunningCluster } from './running-cluster.ts';
import { until } from '../until.ts';
import { temporaryFolder } from '../temporary-folder.ts';
import { DEMO_IMAGE } from '../../scripts/images/demo-image.ts';

const registryProgram = process.env['ORCHLET_TEST_REGISTRY'];
const skipWithoutRegistry =
  registryProgram === undefined ? 'ORCHLET_TEST_REGISTRY is not set: scripts/test sets it' : skipWithoutDocker;
const USER = { username: 'puller', password: 'secret' };
/** The output of `htpasswd -nbB puller secret`. The registry requires bcrypt, which Node.js does not have. */
const PASSWORD_FILE = 'puller:$2y$05$FQ6s52F76L93RzkLRMJzVeIrgxkQFxvNXcRAcK/WoWl.vRB/NcjgK\n';

class Registry {
  readonly address: string;
  readonly #child: ChildProcess;
  readonly #directory: string;

  private constructor(address: string, child: ChildProcess, directory: string) {
    this.address = address;
    this.#child = child;
    this.#directory = directory;
  }

  static async start(program: string): Promise<Registry> {
    const directory = temporaryFolder();
    const address = `127.0.0.1:${await freePort()}`;
    writeFileSync(join(directory, 'htpasswd'), PASSWORD_FILE);
    writeFileSync(
      join(directory, 'config.yml'),
      `version: 0.1
log: {level: error}
storage: {filesystem: {rootdirectory: ${join(directory, 'data')}}}
http: {addr: "${address}"}
auth: {htpasswd: {realm: orchlet, path: ${join(directory, 'htpasswd')}}}
`,
    );
    const child = spawn(program, ['serve', join(directory, 'config.yml')], { stdio: 'ignore' });
    const registry = new Registry(address, child, directory);
    await until('the registry', async () => ((await fetch(`http://${address}/v2/`)).status === 401 ? true : undefined));
    return registry;
  }

  /** Pushes an image and resolves to its digest. */
  async push(docker: Docker, image: string, name: string): Promise<string> {
    const repo = `${this.address}/${name}`;
    await docker.getImage(image).tag({ repo, tag: '1' });
    const pushed = docker.getImage(`${repo}:1`);
    const output = await pushed.push({ authconfig: { ...USER, serveraddress: this.address } });
    let text = '';
    for await (const chunk of output) text += String(chunk);
    await pushed.remove();
    const digest = /"Digest":"(sha256:[0-9a-f]{64})"/.exec(text)?.[1];
    if (digest === undefined) throw new Error(`the push failed: ${text}`);
    return digest;
  }

  stop(): void {
    this.#child.kill();
    rmSync(this.#directory, { recursive: true, force: true });
  }
}

/**
 * Installs plugins that know the password of one folder of the registry each: one for every pod, and one for pods
 * whose service account names the user in an annotation. Returns the agent's flags.
 */
function installPlugins(directory: string, registry: string): string[] {
  const bin = join(directory, 'bin');
  mkdirSync(bin);
  const answer = (folder: string): string =>
    JSON.stringify({
      apiVersion: 'credentialprovider.kubelet.k8s.io/v1',
      kind: 'CredentialProviderResponse',
      cacheKeyType: 'Registry',
      cacheDuration: '1m',
      auth: { [`${registry}/${folder}`]: USER },
    });
  const install = (name: string, script: string): void =>
    writeFileSync(join(bin, name), `#!/bin/sh\n${script}\n`, { mode: 0o755 });
  install('passwords', `cat > /dev/null\necho '${answer('plugin')}'`);
  install(
    'tokens',
    `grep -q '"serviceAccountToken":"ey.*"example.com/user":"puller"' || exit 1\necho '${answer('token')}'`,
  );
  const config = join(directory, 'providers.yaml');
  writeFileSync(
    config,
    `apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
  - name: passwords
    apiVersion: credentialprovider.kubelet.k8s.io/v1
    matchImages: ["${registry}/plugin"]
    defaultCacheDuration: 0s
  - name: tokens
    apiVersion: credentialprovider.kubelet.k8s.io/v1
    matchImages: ["${registry}/token"]
    defaultCacheDuration: 0s
    tokenAttributes:
      serviceAccountTokenAudience: registry.test
      cacheType: ServiceAccount
      requireServiceAccount: true
      requiredServiceAccountAnnotationKeys: [example.com/user]
`,
  );
  return ['--image-credential-provider-config', config, '--image-credential-provider-bin-dir', bin];
}

for (const [on, skip] of [
  ['docker', skipWithoutRegistry],
  ['containerd', skipWithoutRegistry === false ? skipWithoutContainerd : skipWithoutRegistry],
] as const) {
  describe(`a private registry, on ${on}`, { skip, timeout: 280_000 }, () => {
    let cluster: RunningCluster;
    let registry: Registry;
    let digest = '';
    let plugins = '';

    const run = (name: string, image: string, spec: object = {}): void => {
      const container = { name: 'c', image, imagePullPolicy: 'Always', command: ['sleep', '1000'] };
      const pod = {
        apiVersion: 'v1',
        kind: 'Pod',
        metadata: { name },
        spec: { terminationGracePeriodSeconds: 0, containers: [container], ...spec },
      };
      cluster.run(['apply', '-f', '-'], { input: JSON.stringify(pod) });
    };
    const waiting = (name: string): { readonly reason?: string; readonly message?: string } =>
      JSON.parse(
        cluster.run(['get', 'pod', name, '-o', 'jsonpath={.status.containerStatuses[0].state.waiting}']) || '{}',
      ) as { reason?: string; message?: string };
    const refusal = (name: string): { readonly reason?: string; readonly message?: string } | undefined => {
      const found = waiting(name);
      return found.reason === 'ContainerCreating' || found.reason === undefined ? undefined : found;
    };
    const events = (name: string): string =>
      cluster.run([
        'get',
        'events',
        '--field-selector',
        `involvedObject.name=${name}`,
        '-o',
        'jsonpath={range .items[*]}{.type} {.reason} {.message}{"\\n"}{end}',
      ]);
    const isRunning = (name: string): Promise<string> =>
      until(`${name} to run`, () => {
        const imageId = cluster.run([
          'get',
          'pod',
          name,
          '-o',
          'jsonpath={.status.phase} {.status.containerStatuses[0].imageID}',
        ]);
        return imageId.startsWith('Running ') ? imageId.slice('Running '.length) : undefined;
      });

    before(async () => {
      registry = await Registry.start(registryProgram ?? '');
      // The start loads the archive into the runtime, but the push needs it in Docker.
      const docker = new Docker({ socketPath: dockerSocket ?? '' });
      const loader = await docker.loadImage(process.env['ORCHLET_TEST_IMAGES'] ?? '', { quiet: true });
      for await (const chunk of loader) void chunk;
      digest = await registry.push(docker, DEMO_IMAGE, 'team/app');
      for (const name of ['plugin/app', 'token/app']) await registry.push(docker, DEMO_IMAGE, name);
      plugins = temporaryFolder();
      const flags = installPlugins(plugins, registry.address);
      cluster = await RunningCluster.start(['--cluster-cidr', '10.214.0.0/16', ...flags], on);
      cluster.run([
        'create',
        'secret',
        'docker-registry',
        'pull',
        `--docker-server=${registry.address}`,
        `--docker-username=${USER.username}`,
        `--docker-password=${USER.password}`,
      ]);
      await until(
        'the service account',
        () => cluster.kubectl(['get', 'serviceaccount', 'default']).code === 0 || undefined,
      );
    });
    after(async () => {
      await cluster?.remove();
      registry?.stop();
      if (plugins !== '') rmSync(plugins, { recursive: true, force: true });
    });

    test('without the password the pull fails and is retried after a backoff', async () => {
      const image = `${registry.address}/team/app:1`;
      run('refused', image);
      const failed = await until('the failure', () => {
        const found = waiting('refused');
        return found.reason === 'ErrImagePull' || found.reason === 'ImagePullBackOff' ? found : undefined;
      });
      assert.match(
        failed.message ?? '',
        /no basic auth credentials|401 Unauthorized|authorization failed|pull access denied/,
      );
      const backedOff = await until('the back-off', () => {
        const found = waiting('refused');
        return found.reason === 'ImagePullBackOff' ? found : undefined;
      });
      assert.ok(backedOff.message?.startsWith(`Back-off pulling image "${image}": ErrImagePull: `));
      await until('the events', () => {
        const text = events('refused');
        return (
          [
            `Normal Pulling Pulling image "${image}"`,
            `Warning Failed Failed to pull image "${image}": `,
            'Warning Failed Error: ErrImagePull',
            `Normal BackOff Back-off pulling image "${image}"`,
            'Warning Failed Error: ImagePullBackOff',
          ].every((line) => text.includes(line)) || undefined
        );
      });
    });

    test('a pull secret of the pod opens the registry', async () => {
      run('with-secret', `${registry.address}/team/app:1`, { imagePullSecrets: [{ name: 'pull' }] });
      assert.match(await isRunning('with-secret'), /sha256:[0-9a-f]{64}$/);
      await until(
        'the event',
        () =>
          /Normal Pulled Successfully pulled image "\S+" in \S+ \(\S+ including waiting\)\. Image size: \d+ bytes\./.test(
            events('with-secret'),
          ) || undefined,
      );
    });

    test('a private image on the node is for pods with its password only', async () => {
      const image = `${registry.address}/team/app:1`;
      const present = (policy: string): object => ({
        containers: [{ name: 'c', image, imagePullPolicy: policy, command: ['sleep', '1000'] }],
      });
      run('present-with', image, { ...present('Never'), imagePullSecrets: [{ name: 'pull' }] });
      await isRunning('present-with');
      const eventText = `Normal Pulled Container image "${image}" already present on machine and can be accessed by the pod`;
      await until('the event', () => events('present-with').includes(eventText) || undefined);
      for (const [policy, reason] of [
        ['IfNotPresent', /^(ErrImagePull|ImagePullBackOff)$/],
        ['Never', /^ErrImageNeverPull$/],
      ] as const) {
        const name = `present-without-${policy.toLowerCase()}`;
        run(name, image, present(policy));
        const found = await until('the refusal', () => refusal(name));
        assert.match(found.reason ?? '', reason);
        if (policy === 'Never')
          assert.equal(found.message, `Container image "${image}" is not present with pull policy of Never`);
      }
    });

    test('the pull secrets of the service account count as well', async () => {
      cluster.run(['create', 'serviceaccount', 'puller']);
      cluster.run(['patch', 'serviceaccount', 'puller', '-p', '{"imagePullSecrets":[{"name":"pull"}]}']);
      run('with-account', `${registry.address}/team/app:1`, { serviceAccountName: 'puller' });
      await isRunning('with-account');
    });

    test('a credential provider plugin authenticates pulls from its registry without a secret', async () => {
      run('with-plugin', `${registry.address}/plugin/app:1`);
      await isRunning('with-plugin');
    });

    test('a plugin can get a token of the pod’s service account', async () => {
      const image = `${registry.address}/token/app:1`;
      // An administrator must allow audiences that no pod of the node uses.
      const named = { apiVersion: 'rbac.authorization.k8s.io/v1', metadata: { name: 'registry-audience' } };
      const rules = [
        { apiGroups: [''], resources: ['registry.test'], verbs: ['request-serviceaccounts-token-audience'] },
      ];
      const objects = [
        { ...named, kind: 'ClusterRole', rules },
        {
          ...named,
          kind: 'ClusterRoleBinding',
          roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: 'registry-audience' },
          subjects: [{ apiGroup: 'rbac.authorization.k8s.io', kind: 'Group', name: 'system:nodes' }],
        },
      ];
      for (const object of objects) cluster.run(['apply', '-f', '-'], { input: JSON.stringify(object) });
      for (const name of ['known', 'unknown']) cluster.run(['create', 'serviceaccount', name]);
      cluster.run(['annotate', 'serviceaccount', 'known', 'example.com/user=puller']);
      run('with-token', image, { serviceAccountName: 'known' });
      run('without-token', image, { serviceAccountName: 'unknown' });
      await isRunning('with-token');
      await until('the refusal', () => refusal('without-token'));
    });

    test('an image is found by its digest', async () => {
      run('pinned', `${registry.address}/team/app@${digest}`, { imagePullSecrets: [{ name: 'pull' }] });
      assert.match(await isRunning('pinned'), /sha256:[0-9a-f]{64}$/);
    });

    test('a tag that does not exist is reported by its name', async () => {
      run('missing', `${registry.address}/team/app:none`, { imagePullSecrets: [{ name: 'pull' }] });
      const failed = await until('the failure', () => {
        const found = waiting('missing');
        return found.reason === 'ErrImagePull' || found.reason === 'ImagePullBackOff' ? found : undefined;
      });
      assert.match(failed.message ?? '', /team\/app:none.*not found|manifest unknown/);
    });
  });
}
