/** Tests what a container sees of its host on both runtimes: paths of every type, disks, devices and huge pages. */
import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:net';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { hostMounter } from '../../agent/volumes/mounter.ts';
import type { RuntimeName } from './agent-process.ts';
import { run as runOnHost } from './running-cluster.ts';
import { RUNTIMES, skipWithoutBoth, TwoRuntimes } from './two-runtimes.ts';
import { until } from '../until.ts';
import { temporaryFolder } from '../temporary-folder.ts';

const HUGE_PAGES = '/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages';

describe('what a container sees of its host', { skip: skipWithoutBoth, timeout: 290_000 }, () => {
  const nodes = new TwoRuntimes();
  let host = '';
  let socket: Server | undefined;
  let loop = '';
  let pagesBefore = '';

  before(async () => {
    // Huge pages belong to the whole host, so the number is restored at the end.
    pagesBefore = readFileSync(HUGE_PAGES, 'utf8').trim();
    writeFileSync(HUGE_PAGES, String(Number(pagesBefore) + 8));
    host = temporaryFolder();
    mkdirSync(join(host, 'directory'));
    writeFileSync(join(host, 'file'), 'of the host');
    socket = createServer().listen(join(host, 'socket'));
    loop = makeLoopDevice(join(host, 'disk'));
    mkdirSync(join(host, 'tree/inner'), { recursive: true });
    await hostMounter.mount({ source: 'tmpfs', target: join(host, 'tree/inner'), type: 'tmpfs' });
    await nodes.start('10.106.128.0/17');
  });
  after(async () => {
    try {
      await nodes.remove();
    } finally {
      socket?.close();
      if (loop !== '') runOnHost('losetup', ['-d', loop]);
      if (pagesBefore !== '') writeFileSync(HUGE_PAGES, pagesBefore);
      if (host !== '') await hostMounter.unmount(join(host, 'tree/inner'));
      if (host !== '') rmSync(host, { recursive: true, force: true });
    }
  });

  const typed = (name: string, path: string, type: string): object => ({ name, hostPath: { path, type } });
  const volumesOf = (on: RuntimeName): object[] => [
    typed('directory', join(host, 'directory'), 'Directory'),
    typed('file', join(host, 'file'), 'File'),
    typed('socket', join(host, 'socket'), 'Socket'),
    typed('character', '/dev/null', 'CharDevice'),
    typed('block', loop, 'BlockDevice'),
    typed('new-directory', join(host, `new-${on}/deep`), 'DirectoryOrCreate'),
    typed('new-file', join(host, `new-file-${on}`), 'FileOrCreate'),
    typed('any', host, ''),
  ];
  const names = ['any', 'block', 'character', 'directory', 'file', 'new-directory', 'new-file', 'socket'];
  nodes.prepare('paths', (on) => ({
    container: { volumeMounts: names.map((name) => ({ name, mountPath: `/v/${name}` })) },
    spec: { volumes: volumesOf(on) },
  }));
  // The agent refuses a wrong type regardless of the runtime, so one type is enough here.
  nodes.prepare('wrong', () => ({
    container: { volumeMounts: [{ name: 'v', mountPath: '/v' }] },
    spec: { volumes: [typed('v', join(host, 'file'), 'Socket')] },
  }));
  test('a host path is mounted if it has the required type, and refused otherwise', async () => {
    await nodes.each('paths', (pod, on) => {
      const kinds = 'cd /v; for name in *; do echo $name $(stat -c %F $name | tr " " -); done';
      assert.deepEqual(nodes.shell(pod, kinds).split('\n'), [
        'any directory',
        'block block-special-file',
        'character character-special-file',
        'directory directory',
        'file regular-file',
        'new-directory directory',
        'new-file regular-empty-file',
        'socket socket',
      ]);
      nodes.shell(pod, 'echo here > /v/new-file; echo there > /v/new-directory/file');
      assert.equal(readFileSync(join(host, `new-file-${on}`), 'utf8'), 'here\n');
      assert.equal(readFileSync(join(host, `new-${on}/deep/file`), 'utf8'), 'there\n');
    });
    const refused = `FailedMount MountVolume.SetUp failed for volume "v" : hostPath type check failed: ${host}/file is not a socket file`;
    for (const on of RUNTIMES) await until('the refusal', () => nodes.events(`wrong-${on}`).includes(refused));
  });

  const claimed = (on: RuntimeName, name: string, path: string, volumeMode: string): object[] => {
    const shared = { accessModes: ['ReadWriteOnce'], volumeMode, storageClassName: `of-${name}-${on}` };
    const terms = [
      { matchExpressions: [{ key: 'kubernetes.io/hostname', operator: 'In', values: [nodes.nodeName(on)] }] },
    ];
    return [
      {
        apiVersion: 'v1',
        kind: 'PersistentVolume',
        metadata: { name: `${name}-${on}`, annotations: { 'pv.beta.kubernetes.io/gid': '4321' } },
        spec: {
          ...shared,
          capacity: { storage: '8Mi' },
          local: { path },
          nodeAffinity: { required: { nodeSelectorTerms: terms } },
        },
      },
      {
        apiVersion: 'v1',
        kind: 'PersistentVolumeClaim',
        metadata: { name: `${name}-${on}` },
        spec: { ...shared, resources: { requests: { storage: '8Mi' } } },
      },
    ];
  };
  nodes.prepareObjects(() =>
    RUNTIMES.flatMap((on) => {
      const path = join(host, `local-${on}`);
      mkdirSync(path);
      writeFileSync(join(path, 'before'), 'x', { mode: 0o600 });
      return [...claimed(on, 'local', path, 'Filesystem'), ...claimed(on, 'block', loop, 'Block')];
    }),
  );
  nodes.prepare('claims', (on) => ({
    container: {
      volumeMounts: [{ name: 'local', mountPath: '/local' }],
      volumeDevices: [{ name: 'block', devicePath: '/dev/disk' }],
    },
    spec: {
      securityContext: { fsGroup: 5432, fsGroupChangePolicy: 'OnRootMismatch' },
      volumes: ['local', 'block'].map((name) => ({ name, persistentVolumeClaim: { claimName: `${name}-${on}` } })),
    },
  }));
  test('a claim provides a directory or a block device of the node', async () => {
    await nodes.each('claims', (pod, on) => {
      assert.equal(
        nodes.shell(pod, 'stat -c "%g %a" /local/before; stat -c "%g %A" /local').replaceAll('\n', ' '),
        '5432 660 5432 drwxrwsr-x',
      );
      assert.match(nodes.shell(pod, 'id -G'), /\b4321\b/);
      assert.equal(nodes.shell(pod, 'test -b /dev/disk && echo a device'), 'a device');
      nodes.shell(pod, `printf 'written on ${on}' | dd of=/dev/disk conv=fsync 2>/dev/null`);
      assert.equal(
        runOnHost('dd', [`if=${loop}`, 'bs=4096', 'count=1', 'status=none', 'iflag=direct']).slice(0, 11 + on.length),
        `written on ${on}`,
      );
    });
  });

  const below = { name: 'tree', mountPath: '/tree', readOnly: true };
  const tree = (): object => ({ volumes: [{ name: 'tree', hostPath: { path: join(host, 'tree') } }] });
  nodes.prepare('read-only', () => ({
    container: {
      volumeMounts: [
        { ...below, recursiveReadOnly: 'IfPossible' },
        { ...below, mountPath: '/plain' },
      ],
    },
    spec: tree(),
  }));
  nodes.prepare('all-read-only', () => ({
    container: { volumeMounts: [{ ...below, recursiveReadOnly: 'Enabled' }] },
    spec: tree(),
  }));
  test('mounts below a read-only mount are read-only, too, if the runtime supports that', async () => {
    await nodes.each('read-only', async (pod, on) => {
      const node = nodes.nodeName(on);
      const handlers = '{.status.runtimeHandlers[?(@.name=="")].features.recursiveReadOnlyMounts}';
      const isPossible = nodes.run(['get', 'node', node, '-o', `jsonpath=${handlers}`]) === 'true';
      const tries =
        'for d in /tree /plain; do touch $d/x 2>/dev/null; echo $?; touch $d/inner/x 2>/dev/null; echo $?; done';
      assert.equal(nodes.shell(pod, tries).replaceAll('\n', ' '), isPossible ? '1 1 1 0' : '1 0 1 0');
      await until('the fate of the one that insists', () =>
        isPossible
          ? nodes.shell(`all-read-only-${on}`, 'touch /tree/inner/x 2>/dev/null; echo $?') === '1'
          : /requested recursive read-only mode, but it is not supported by the runtime/.test(
              nodes.field(`all-read-only-${on}`, '.status.containerStatuses[0].state.waiting.message'),
            ),
      );
    });
  });

  nodes.prepare('pages', {
    container: {
      resources: { limits: { 'hugepages-2Mi': '4Mi', memory: '32Mi', cpu: '50m' } },
      volumeMounts: [
        { name: 'pages', mountPath: '/pages' },
        { name: 'sized', mountPath: '/sized' },
      ],
    },
    spec: {
      volumes: [
        { name: 'pages', emptyDir: { medium: 'HugePages' } },
        { name: 'sized', emptyDir: { medium: 'HugePages-2Mi' } },
      ],
    },
  });
  test('huge pages are available as a volume, within the limits of the container', async () => {
    await nodes.each('pages', (pod) => {
      assert.equal(nodes.field(pod, '.status.qosClass'), 'Guaranteed');
      const mounts = nodes.shell(pod, 'grep hugetlbfs /proc/mounts');
      for (const path of ['/pages', '/sized'])
        assert.match(mounts, new RegExp(`^nodev ${path} hugetlbfs .*pagesize=2M`, 'm'));
      // The score is lowered if the runtime's own daemon may do so.
      assert.match(nodes.shell(pod, 'cat /proc/1/oom_score_adj'), /^(?:-997|0)$/);
    });
  });
});

function makeLoopDevice(path: string): string {
  runOnHost('truncate', ['-s', '8M', path]);
  return runOnHost('losetup', ['--find', '--show', path]).trim();
}
