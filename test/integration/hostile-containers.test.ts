/**
 * Containers attack the agent through files that both can write, on both runtimes: volumes, termination logs, sub-paths, files
 * that remain after a pod, and container logs. The attackers are root and have host paths, so only the agent's own checks keep
 * its reads and writes inside. Every link leads to a directory of the host, which must stay unchanged, and the agents must keep
 * running.
 */
import assert from 'node:assert/strict';
import { type BigIntStats, existsSync, lstatSync, mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, afterEach, before, describe, test } from 'node:test';
import type { RuntimeName } from './agent-process.ts';
import { type PodOptions, RUNTIMES, skipWithoutBoth, TwoRuntimes } from './two-runtimes.ts';
import { until } from '../until.ts';
import { temporaryFolder } from '../temporary-folder.ts';
import { DEMO_IMAGE } from '../../scripts/images/demo-image.ts';

const SECRET = 'of the host alone';

/** Returns everything that writing, creating, removing or changing an owner or a mode would change. */
function snapshot(path: string): string {
  const of = ({ mode, uid, gid, size, ino, mtimeNs, ctimeNs }: BigIntStats): string =>
    [mode, uid, gid, size, ino, mtimeNs, ctimeNs].join(' ');
  const stat = lstatSync(path, { bigint: true });
  const below = stat.isDirectory() ? readdirSync(path).map((name) => snapshot(join(path, name))) : [];
  return [`${path} ${of(stat)}`, ...below].join('\n');
}

describe('a hostile container', { skip: skipWithoutBoth, timeout: 290_000 }, () => {
  const nodes = new TwoRuntimes();
  let host = '';
  let untouched = '';
  let shadow = '';
  const tree = (): string => join(host, 'tree');

  before(async () => {
    host = temporaryFolder();
    mkdirSync(join(tree(), 'inner'), { recursive: true });
    for (const name of ['secret', 'key', 'inner/kept']) writeFileSync(join(tree(), name), SECRET, { mode: 0o600 });
    untouched = snapshot(tree());
    shadow = snapshot('/etc/shadow');
    await nodes.start('10.107.0.0/17');
  });
  afterEach(() => {
    for (const on of RUNTIMES) nodes.agent(on).assertAlive();
    assert.equal(snapshot(tree()), untouched, 'the tree of the host is as it was');
    assert.equal(snapshot('/etc/shadow'), shadow);
  });
  after(async () => {
    try {
      await nodes.remove();
    } finally {
      if (host !== '') rmSync(host, { recursive: true, force: true });
    }
  });

  const path = (name: string, hostPath: string): object => ({ name, hostPath: { path: hostPath } });
  const podsOf = (on: RuntimeName): string => join(nodes.agent(on).rootDirectory, 'pods');
  const podDirectory = (on: RuntimeName, pod: string): string => join(podsOf(on), nodes.field(pod, '.metadata.uid'));
  const uid = { name: 'POD_UID', valueFrom: { fieldRef: { fieldPath: 'metadata.uid' } } };
  const sh = (name: string, script: string, more: object = {}): object => ({
    ...{ name, image: DEMO_IMAGE, command: ['sh', '-c', script] },
    ...more,
  });
  const mount = (name: string): object => ({ name, mountPath: `/${name}` });

  const payloads = ['config', 'secret', 'projected'];
  const configMap = (on: RuntimeName, value: string): object => ({
    apiVersion: 'v1',
    kind: 'ConfigMap',
    metadata: { name: `raced-${on}` },
    data: { key: value },
  });
  const secret = (on: RuntimeName, value: string): object => ({
    apiVersion: 'v1',
    kind: 'Secret',
    metadata: { name: `raced-${on}` },
    stringData: { key: value },
  });
  /**
   * Returns a script that repeatedly replaces everything that the agent writes for a volume with a link to the host's
   * directory: the new directory, the current directory, and the names of the files.
   */
  const race = (target: string): string => `
    cd /pods/$POD_UID/volumes
    until [ -e /empty/stop ]; do
      for v in kubernetes.io~configmap/config kubernetes.io~secret/secret kubernetes.io~projected/projected; do
        ln -sfn ${target} $v/..data_tmp
        for d in $v/..20*; do [ -L $d ] || { mv $d $v/moved && ln -s ${target} $d; rm -rf $v/moved; }; done
        ln -sfn ${target}/key $v/key
      done 2>/dev/null
      ln -sfn ${target} /empty/link
      echo >> /empty/rounds
    done
    sleep 100000`;
  nodes.prepareObjects(() => RUNTIMES.flatMap((on) => [configMap(on, 'first'), secret(on, 'first')]));
  nodes.prepare('race', (on) => ({
    containers: [
      sh('main', 'sleep 100000', { volumeMounts: [...payloads, 'empty'].map(mount) }),
      sh('racer', race(tree()), { env: [uid], volumeMounts: ['pods', 'empty'].map(mount) }),
    ],
    spec: {
      volumes: [
        path('pods', podsOf(on)),
        { name: 'empty', emptyDir: {} },
        { name: 'config', configMap: { name: `raced-${on}` } },
        { name: 'secret', secret: { secretName: `raced-${on}` } },
        { name: 'projected', projected: { sources: [{ configMap: { name: `raced-${on}` } }] } },
      ],
    },
  }));
  test('that swaps links into volumes while the agent updates them changes nothing outside, and cannot write its own mounts', async () => {
    await nodes.each('race', async (pod, on) => {
      const write = 'for v in config secret projected; do touch /$v/x; ln -s / /$v/link; done 2>&1; true';
      assert.equal(nodes.shell(pod, write).match(/Read-only file system/g)?.length, 6);
      const rounds = (): number => Number(nodes.shell(pod, 'wc -l < /empty/rounds'));
      for (let update = 0; update < 4; update += 1) {
        const before = rounds();
        nodes.apply(configMap(on, `update ${update}`), secret(on, `update ${update}`));
        await until('more rounds of the race', () => rounds() > before + 20);
      }
      nodes.shell(pod, 'touch /empty/stop');
      nodes.apply(configMap(on, 'last'), secret(on, 'last'));
      const seen = (): string => nodes.shell(pod, 'cat /config/key /secret/key /projected/key');
      await until('the last update in all volumes', () => seen() === 'lastlastlast');
    });
  });

  /** Replaces the agent's own file with something else, and then fails. */
  const instead = (name: string, make: string): object =>
    sh(name, `for f in /pods/$POD_UID/containers/${name}/*; do rm $f; ${make} $f; done; exit 1`, {
      env: [uid],
      volumeMounts: [mount('pods')],
    });
  nodes.prepare('last-words', (on) => ({
    containers: [
      instead('fifo', 'mkfifo'),
      instead('shadow', 'ln -s /etc/shadow'),
      instead('secret', `ln -s ${tree()}/secret`),
      // The agent's file covers what the pod created at the same path.
      ...['covered-fifo', 'covered-link'].map((name) =>
        sh(name, `echo mine > /made/${name}; exit 1`, {
          terminationMessagePath: `/made/${name}`,
          volumeMounts: [mount('made')],
        }),
      ),
    ],
    spec: {
      restartPolicy: 'Never',
      initContainers: [
        sh('maker', 'mkfifo /made/covered-fifo; ln -s /etc/shadow /made/covered-link', {
          volumeMounts: [mount('made')],
        }),
      ],
      volumes: [path('pods', podsOf(on)), { name: 'made', emptyDir: {} }],
    },
  }));
  test('that makes a FIFO or a link of its termination log is not waited for, and no file of the host becomes its message', async () => {
    for (const on of RUNTIMES) {
      const pod = `last-words-${on}`;
      await until('the end of the pod', () => nodes.field(pod, '.status.phase') === 'Failed');
      const message = (name: string): string =>
        nodes.field(pod, `.status.containerStatuses[?(@.name=="${name}")].state.terminated.message`);
      for (const name of ['fifo', 'shadow', 'secret'])
        assert.match(message(name), /^Error on reading termination log \S+: "\w+" is not a regular file$/);
      assert.equal(message('covered-fifo'), 'mine\n');
      assert.doesNotMatch(message('covered-link'), /root:/);
    }
  });

  const runners = ['one', 'two', 'three', 'four', 'five', 'six'];
  const swap = (target: string): string => `
    while true; do
      ln -s ${target} /work/next; mv -T /work/next /work/sub
      ln -s real /work/next; mv -T /work/next /work/sub
    done`;
  nodes.prepare('sub-path', () => ({
    containers: [
      sh('main', swap(tree()), { volumeMounts: [mount('work')] }),
      ...runners.map((name) =>
        sh(name, `echo x > /sub/${name}; cat /sub/secret; sleep 100000`, {
          volumeMounts: [{ name: 'work', mountPath: '/sub', subPath: 'sub' }],
        }),
      ),
    ],
    spec: {
      initContainers: [sh('maker', 'mkdir /work/real; ln -s real /work/sub', { volumeMounts: [mount('work')] })],
      volumes: [{ name: 'work', emptyDir: {} }],
    },
  }));
  test('whose sub-path becomes a link to the host meanwhile gets what is in the volume, or nothing', async () => {
    for (const on of RUNTIMES) {
      const pod = `sub-path-${on}`;
      const waiting = (name: string): string =>
        nodes.field(pod, `.status.containerStatuses[?(@.name=="${name}")].state.waiting.message`);
      const runs = (name: string): boolean =>
        nodes.field(pod, `.status.containerStatuses[?(@.name=="${name}")].state.running`) !== '';
      for (const name of runners) {
        const refusal = /is a link out of its volume|became a link while it was opened/;
        await until(`${name} to start or to be refused`, () => runs(name) || refusal.test(waiting(name)));
        if (!runs(name)) continue;
        assert.doesNotMatch(nodes.run(['logs', pod, '-c', name]), new RegExp(SECRET));
        assert.equal(nodes.shell(pod, 'cat /sub/secret /sub/* 2>/dev/null; true', name).replace(/[x\s]/g, ''), '');
      }
    }
  });

  nodes.prepare('leaver', () => ({
    container: { volumeMounts: [mount('left')] },
    spec: { volumes: [{ name: 'left', emptyDir: {} }] },
  }));
  test('leaves device nodes, FIFOs and links behind, which go with its pod', async () => {
    await nodes.each('leaver', async (pod, on) => {
      nodes.shell(pod, `cd /left; mknod null c 1 3; mknod disk b 7 0; mkfifo fifo; mkdir -p a/b/c; mkfifo a/b/c/fifo`);
      nodes.shell(pod, `cd /left; for l in link a/link a/b/c/link; do ln -s ${tree()} $l; done; chmod 0 a/b`);
      const directory = podDirectory(on, pod);
      assert.equal(readdirSync(join(directory, 'volumes/kubernetes.io~empty-dir/left')).length, 5);
      nodes.run(['delete', 'pod', pod, '--timeout=60s']);
      await until('the end of its directory', () => !existsSync(directory));
    });
  });

  const logsOf = (on: RuntimeName): string => join(nodes.agent(on).directory, 'logs');
  nodes.prepare('logger', { container: { command: ['sh', '-c', 'echo said; sleep 100000'] } });
  nodes.prepare('planter', (on): PodOptions => ({
    container: { volumeMounts: [mount('logs')] },
    spec: { volumes: [path('logs', logsOf(on))] },
  }));
  test('that plants FIFOs and links in the logs of pods makes no reader wait and shows nothing of the host', async () => {
    await nodes.each('logger', () => undefined);
    await nodes.each('planter', async (pod, on) => {
      const logger = `logger-${on}`;
      await until('the log', () => nodes.run(['logs', logger]) === 'said\n');
      const log = `/logs/default_${logger}_${nodes.field(logger, '.metadata.uid')}/main/0.log`;
      for (const make of ['mkfifo', `ln -s ${tree()}/secret`]) {
        nodes.shell(pod, `rm -f ${log}; ${make} ${log}; rm -f ${log}.1; ${make} ${log}.1`);
        // There is a reader for each thread that opens files, and none of them may block.
        for (let reader = 0; reader < 4; reader += 1) {
          const read = nodes.try(['logs', logger]);
          assert.notEqual(read.stdout, 'said\n');
          assert.doesNotMatch(`${read.stdout}${read.stderr}`, new RegExp(SECRET));
        }
      }
      // The directories look like those of deleted pods.
      nodes.shell(
        pod,
        `ln -s ${tree()} /logs/default_gone_1; mkdir /logs/default_gone_2; ln -s ${tree()} /logs/default_gone_2/main`,
      );
      nodes.run(['delete', 'pod', logger, '--timeout=60s']);
      assert.equal(nodes.shell(pod, 'echo still here'), 'still here');
    });
  });

  test('does not prevent other pods from running', async () => {
    for (const on of RUNTIMES) {
      const spec = {
        nodeName: nodes.nodeName(on),
        containers: [{ name: 'main', image: DEMO_IMAGE, command: ['sleep', '100000'] }],
      };
      nodes.apply({ apiVersion: 'v1', kind: 'Pod', metadata: { name: `after-${on}` }, spec });
    }
    await nodes.each('after', () => undefined);
  });
});
