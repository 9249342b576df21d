/** Tests volumes as a container sees them on both runtimes: types, sizes, modes, sub-paths, propagation and updates. */
import assert from 'node:assert/strict';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { hostMounter } from '../../agent/volumes/mounter.ts';
import { skipWithoutContainerd, skipWithoutDocker } from './container-runtimes.ts';
import { run, RunningCluster } from './running-cluster.ts';
import { until } from '../until.ts';
import { DEMO_IMAGE } from '../../scripts/images/demo-image.ts';

for (const [on, skip, cidr] of [
  ['docker', skipWithoutDocker, '10.223.0.0/16'],
  ['containerd', skipWithoutContainerd, '10.224.0.0/16'],
] as const) {
  describe(`volumes in containers, on ${on}`, { skip, timeout: 280_000 }, () => {
    let cluster: RunningCluster;

    const apply = (...objects: object[]): string =>
      cluster.run(['apply', '-f', '-'], {
        input: JSON.stringify({ apiVersion: 'v1', kind: 'List', items: objects }),
      });
    const podOf = (
      name: string,
      mounts: object[],
      volumes: object[],
      spec: object = {},
      container: object = {},
    ): object => ({
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name, labels: { app: name } },
      spec: {
        terminationGracePeriodSeconds: 0,
        containers: [
          {
            name: 'c',
            image: DEMO_IMAGE,
            command: ['sleep', '1000'],
            volumeMounts: mounts,
            ...container,
          },
        ],
        volumes,
        ...spec,
      },
    });
    const configMap = (name: string, data: object, more: object = {}): object => ({
      apiVersion: 'v1',
      kind: 'ConfigMap',
      metadata: { name },
      data,
      ...more,
    });
    const running = (name: string): Promise<true> =>
      until(
        `${name} to run`,
        () => cluster.run(['get', 'pod', name, '-o', 'jsonpath={.status.phase}']) === 'Running' || undefined,
      );
    const sh = (pod: string, command: string): string => cluster.run(['exec', pod, '--', 'sh', '-c', command]);

    before(async () => {
      cluster = await RunningCluster.start(['--cluster-cidr', cidr], on);
      await until(
        'the service account',
        () => cluster.kubectl(['get', 'serviceaccount', 'default']).code === 0 || undefined,
      );
    });
    after(() => cluster?.remove());

    test('files have the content, names and modes of their volumes', async () => {
      apply(
        configMap('settings', { one: '1', two: '2' }),
        { apiVersion: 'v1', kind: 'Secret', metadata: { name: 'keys' }, stringData: { key: 'k' } },
        podOf(
          'files',
          [
            { name: 'config', mountPath: '/config' },
            { name: 'secret', mountPath: '/secret' },
            { name: 'all', mountPath: '/all' },
            { name: 'optional', mountPath: '/optional' },
          ],
          [
            {
              name: 'config',
              configMap: { name: 'settings', items: [{ key: 'two', path: 'deep/file', mode: 0o440 }] },
            },
            { name: 'secret', secret: { secretName: 'keys', defaultMode: 0o400 } },
            { name: 'optional', configMap: { name: 'nowhere', optional: true } },
            {
              name: 'all',
              projected: {
                defaultMode: 0o644,
                sources: [
                  { configMap: { name: 'settings' } },
                  { secret: { name: 'keys', items: [{ key: 'key', path: 'secrets/key' }] } },
                  { downwardAPI: { items: [{ path: 'name', fieldRef: { fieldPath: 'metadata.name' } }] } },
                  { serviceAccountToken: { path: 'token', audience: 'somebody', expirationSeconds: 600 } },
                ],
              },
            },
          ],
          { securityContext: { fsGroup: 2345 } },
        ),
      );
      await running('files');
      const listed = sh(
        'files',
        'cat /config/deep/file; stat -Lc " %a %g" /config/deep/file /secret/key; ls /optional | wc -l',
      );
      assert.equal(listed.trim().replaceAll(/\s+/g, ' '), '2 440 2345 440 2345 0');
      assert.equal(sh('files', 'cat /all/one /all/secrets/key /all/name'), '1kfiles');
      const claims = JSON.parse(
        Buffer.from(sh('files', 'cat /all/token').split('.')[1] ?? '', 'base64url').toString('utf8'),
      ) as { readonly aud: readonly string[] };
      assert.deepEqual(claims.aud, ['somebody']);
      assert.match(sh('files', 'grep " /secret " /proc/mounts'), /^tmpfs /);
    });

    test('a change of a config map becomes visible in the container atomically', async () => {
      apply(configMap('changing', { a: 'old', b: 'old' }));
      apply(podOf('follows', [{ name: 'v', mountPath: '/v' }], [{ name: 'v', configMap: { name: 'changing' } }]));
      await running('follows');
      apply(configMap('changing', { a: 'new', b: 'new' }));
      const seen = await until('the change', () => {
        const text = sh('follows', 'cd /v/..data && cat a b');
        return text === 'oldold' ? undefined : text;
      });
      assert.equal(seen, 'newnew');
    });

    test('a pod that waits for a config map and a secret starts when they are created', async () => {
      apply(
        podOf(
          'waits',
          [{ name: 'v', mountPath: '/v' }],
          [{ name: 'v', configMap: { name: 'late' } }],
          {},
          { envFrom: [{ secretRef: { name: 'later' } }] },
        ),
      );
      const events = (): string =>
        cluster.run([
          'get',
          'events',
          '--field-selector',
          'involvedObject.name=waits',
          '-o',
          'jsonpath={.items[*].message}',
        ]);
      await until(
        'the event that names what is missing',
        () => events().includes('MountVolume.SetUp failed for volume "v" : configmap "late" not found') || undefined,
      );
      apply(configMap('late', { a: '1' }));
      await until('the event about the secret', () => events().includes('secret "later" not found') || undefined);
      apply({ apiVersion: 'v1', kind: 'Secret', metadata: { name: 'later' }, stringData: { WORD: 'here' } });
      await running('waits');
      assert.equal(sh('waits', 'echo $WORD; cat /v/a'), 'here\n1');
    });

    test('a memory volume has the smaller one of its own size limit and its pod’s memory limit', async () => {
      const memory = (name: string, sizeLimit?: string): object => ({
        name,
        emptyDir: { medium: 'Memory', sizeLimit },
      });
      apply(
        podOf(
          'memory',
          [
            { name: 'small', mountPath: '/small' },
            { name: 'large', mountPath: '/large' },
            { name: 'any', mountPath: '/any' },
          ],
          [memory('small', '8Mi'), memory('large', '1Gi'), memory('any')],
          {},
          { resources: { limits: { memory: '64Mi' } } },
        ),
      );
      await running('memory');
      const sizes = sh('memory', 'for d in small large any; do df -k /$d | tail -n 1; done')
        .split('\n')
        .filter((line) => line !== '')
        .map((line) => Number(line.trim().split(/\s+/)[1]) / 1024);
      assert.deepEqual(sizes, [8, 64, 64]);
      assert.equal(sh('memory', 'stat -c %a /small').trim(), '1777');
    });

    test('sub-paths mount a part of a volume, by name and by expression, and cannot lead out of it', async () => {
      const directory = join(cluster.directory, 'shared');
      mkdirSync(join(directory, 'part'), { recursive: true });
      writeFileSync(join(directory, 'part/file'), 'part of it');
      apply(
        podOf(
          'parts',
          [
            { name: 'v', mountPath: '/by-name', subPath: 'part' },
            { name: 'v', mountPath: '/file', subPath: 'part/file', readOnly: true },
            { name: 'v', mountPath: '/own', subPathExpr: 'of-$(NAME)' },
          ],
          [{ name: 'v', hostPath: { path: directory, type: 'Directory' } }],
          {},
          { env: [{ name: 'NAME', valueFrom: { fieldRef: { fieldPath: 'metadata.name' } } }] },
        ),
      );
      await running('parts');
      assert.equal(sh('parts', 'cat /by-name/file /file; ls / | grep -c ^own'), 'part of itpart of it1\n');
      assert.notEqual(cluster.kubectl(['exec', 'parts', '--', 'sh', '-c', 'echo x > /file']).code, 0);
      sh('parts', 'echo mine > /own/x');
      rmSync(join(directory, 'part'), { recursive: true });
      sh('parts', 'ln -s / /own/out');
      apply(
        podOf(
          'escapes',
          [{ name: 'v', mountPath: '/out', subPath: 'of-parts/out/etc' }],
          [{ name: 'v', hostPath: { path: directory } }],
        ),
      );
      await until('the refusal', () => {
        const text = cluster.run([
          'get',
          'pod',
          'escapes',
          '-o',
          'jsonpath={.status.containerStatuses[0].state.waiting}',
        ]);
        return text.includes('CreateContainerConfigError') && text.includes('failed to prepare subPath for volumeMount')
          ? true
          : undefined;
      });
    });

    test('later mounts of the host are visible only through mounts with propagation', async () => {
      const directory = join(cluster.directory, 'propagated');
      mkdirSync(join(directory, 'inner'), { recursive: true });
      await hostMounter.mount({ source: directory, target: directory, options: ['bind'] });
      run('mount', ['--make-shared', directory]);
      apply(
        podOf(
          'propagation',
          [
            { name: 'v', mountPath: '/follows', mountPropagation: 'HostToContainer' },
            { name: 'v', mountPath: '/private' },
          ],
          [{ name: 'v', hostPath: { path: directory, type: 'Directory' } }],
        ),
      );
      await running('propagation');
      await hostMounter.mount({ source: 'tmpfs', target: join(directory, 'inner'), type: 'tmpfs' });
      writeFileSync(join(directory, 'inner/late'), '');
      assert.equal(
        sh('propagation', 'ls /follows/inner; ls /private/inner | wc -l').replaceAll(/\s+/g, ' '),
        'late 0 ',
      );
    });

    test('a path that does not have the required type is reported, and the pod waits for it', async () => {
      const path = join(cluster.directory, 'comes-later');
      apply(podOf('typed', [{ name: 'v', mountPath: '/v' }], [{ name: 'v', hostPath: { path, type: 'Directory' } }]));
      await until(
        'the event',
        () =>
          cluster
            .run([
              'get',
              'events',
              '--field-selector',
              'involvedObject.name=typed',
              '-o',
              'jsonpath={.items[*].message}',
            ])
            .includes(
              `MountVolume.SetUp failed for volume "v" : hostPath type check failed: ${path} is not a directory`,
            ) || undefined,
      );
      mkdirSync(path);
      await running('typed');
    });

    if (on === 'docker') {
      test('an image can be mounted as a volume', async () => {
        apply(
          podOf(
            'image',
            [{ name: 'v', mountPath: '/v' }],
            [{ name: 'v', image: { reference: DEMO_IMAGE, pullPolicy: 'Never' } }],
          ),
        );
        await running('image');
        assert.match(sh('image', 'ls /v'), /^bin$/m);
        assert.notEqual(cluster.kubectl(['exec', 'image', '--', 'sh', '-c', 'touch /v/x']).code, 0);
      });
    }
  });
}
