/** Tests a whole cluster on real containers with the oldest and the newest installed kubectl. */
import assert from 'node:assert/strict';
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { get as httpGet } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { skipWithoutDocker } from './container-runtimes.ts';
import { freePort } from './free-port.ts';
import { kubectls } from './kubectl.ts';
import { run, RunningCluster } from './running-cluster.ts';
import { tarOf } from '../hostile-archives.ts';
import { mountsBelow } from '../mounts.ts';
import { until } from '../until.ts';
import { temporaryFolder } from '../temporary-folder.ts';
import { DEMO_IMAGE } from '../../scripts/images/demo-image.ts';

const ROOT = join(import.meta.dirname, '../..');
const installed = kubectls();
const chosen = [...new Set([installed[0], installed.at(-1)])].filter((found) => found !== undefined);
const skip = skipWithoutDocker === false && installed.length === 0 ? 'no kubectl on PATH' : skipWithoutDocker;

function fetchText(url: string): Promise<string> {
  return new Promise((resolve, reject) => {
    httpGet(url, (response) => {
      let text = '';
      response.on('data', (chunk: Buffer) => (text += chunk.toString()));
      response.on('end', () => resolve(text));
    }).on('error', reject);
  });
}

function askAgent(
  port: number,
  path: string,
  { token, method = 'GET', body }: { readonly token?: string; readonly method?: string; readonly body?: string },
): Promise<{ readonly status: number; readonly text: string }> {
  return new Promise((resolve, reject) => {
    const headers = token === undefined ? {} : { authorization: `Bearer ${token}` };
    const options = { host: '127.0.0.1', port, path, method, headers, agent: false, rejectUnauthorized: false };
    const sent = httpsRequest(options, (response) => {
      let text = '';
      response.on('data', (chunk: Buffer) => (text += chunk.toString()));
      response.on('end', () => resolve({ status: response.statusCode ?? 0, text }));
    });
    sent.on('error', reject);
    sent.end(body);
  });
}

describe('a cluster of one node', { skip, timeout: 400_000 }, () => {
  let cluster: RunningCluster;
  before(async () => {
    cluster = await RunningCluster.start(['--cluster-cidr', '10.211.0.0/16']);
  });
  after(async () => {
    await cluster?.remove();
  });

  for (const { version, path } of chosen) {
    describe(`with kubectl ${version}`, () => {
      const run = (args: readonly string[], input?: string): string =>
        cluster.run(args, { path, ...(input === undefined ? {} : { input }) });
      const podName = (): string =>
        run([
          'get',
          'pods',
          '-l',
          'app=hello',
          '--field-selector=status.phase=Running',
          '-o',
          'jsonpath={.items[0].metadata.name}',
        ]);
      let scratch = '';

      before(() => {
        scratch = temporaryFolder();
      });
      after(() => rmSync(scratch, { recursive: true, force: true }));

      test('apply makes pods, and wait and get show them', () => {
        run(['apply', '-f', join(ROOT, 'examples/hello.yaml')]);
        run(['rollout', 'status', 'deploy/hello', '--timeout=60s']);
        run(['wait', '--for=condition=Available', 'deploy/hello', '--timeout=60s']);
        assert.match(run(['get', 'pods']), /NAME +READY +STATUS +RESTARTS +AGE\nhello-\S+ +1\/1 +Running/);
        assert.match(run(['get', 'deploy,rs,svc', '-o', 'wide']), /deployment.apps\/hello/);
        assert.match(run(['get', 'nodes']), /NAME +STATUS +ROLES +AGE +VERSION\n\S+ +Ready/);
      });

      test('describe shows the events', async () => {
        await until(
          'the events',
          () => (/Started/.test(run(['describe', 'pod', podName()])) ? true : undefined),
          30_000,
        );
        const text = run(['describe', 'pod', podName()]);
        assert.match(text, /Successfully assigned default\/hello-/);
        assert.match(run(['describe', 'node']), /Non-terminated Pods:/);
      });

      test('logs shows a log, and follows it', async () => {
        await until('a log line', () => (run(['logs', podName()]).includes('response:200') ? true : undefined), 30_000);
        const child = cluster.spawn(['logs', '-f', '--tail=1', podName()], path);
        const line = await new Promise<string>((resolve) =>
          child.stdout?.once('data', (chunk: Buffer) => resolve(chunk.toString())),
        );
        child.kill();
        assert.match(line, /response/);
      });

      test('exec passes input, output and the exit code, and runs with -t without a terminal', () => {
        assert.equal(run(['exec', podName(), '--', 'echo', 'one', 'two']), 'one two\n');
        assert.equal(run(['exec', '-i', podName(), '--', 'cat'], 'through stdin'), 'through stdin');
        const failed = cluster.kubectl(['exec', podName(), '--', 'sh', '-c', 'exit 7'], { path });
        assert.equal(failed.code, 7);
        const inTerminal = cluster.kubectl(
          ['exec', '-i', '-t', podName(), '--', 'sh', '-c', 'test -t 1 && echo terminal'],
          { path },
        );
        // Without its own terminal, kubectl does not request one. The command runs in both cases.
        assert.ok(inTerminal.code === 0 || inTerminal.code === 1, inTerminal.stderr);
      });

      test('port-forward leads to a port of the pod', async () => {
        const port = await freePort();
        const child = cluster.spawn(['port-forward', podName(), `${port}:8080`], path);
        try {
          const text = await until('the forwarded page', () => fetchText(`http://127.0.0.1:${port}/`), 30_000);
          assert.match(text, /^hello from hello-/);
        } finally {
          child.kill();
        }
      });

      test('cp copies a file to a container and back unchanged', () => {
        const file = join(scratch, 'there');
        const back = join(scratch, 'back');
        writeFileSync(file, 'x'.repeat(300_000));
        run(['cp', file, `${podName()}:/tmp/there`]);
        run(['cp', `${podName()}:/tmp/there`, back]);
        assert.equal(readFileSync(back, 'utf8'), readFileSync(file, 'utf8'));
      });

      test('cp from a container whose tar is hostile writes nothing outside of the target', async () => {
        const archive = join(scratch, 'hostile.tar');
        const outside = join(scratch, 'outside');
        writeFileSync(
          archive,
          await tarOf([
            { header: { name: 'tmp/data/kept' }, content: 'kept' },
            { header: { name: '../../outside/by-dots' }, content: 'evil' },
            { header: { name: join(outside, 'by-root') }, content: 'evil' },
            { header: { name: 'tmp/data/link', type: 'symlink', linkname: outside } },
            { header: { name: 'tmp/data/link/by-link' }, content: 'evil' },
          ]),
        );
        mkdirSync(outside);
        run(['cp', archive, `${podName()}:/tmp/hostile.tar`]);
        const tar = '#!/bin/sh\nexec cat /tmp/hostile.tar\n';
        run(['exec', '-i', podName(), '--', 'sh', '-c', 'rm /bin/tar; cat > /bin/tar; chmod +x /bin/tar'], tar);
        const target = join(scratch, 'target');
        cluster.kubectl(['cp', `${podName()}:/tmp/data`, target], { path });
        assert.deepEqual(readdirSync(outside), []);
        assert.equal(readFileSync(join(target, 'kept'), 'utf8'), 'kept');
      });

      test('a deployment is scaled, patched and rolled back', async () => {
        run(['scale', 'deploy/hello', '--replicas=2']);
        run(['rollout', 'status', 'deploy/hello', '--timeout=60s']);
        run(['patch', 'deploy/hello', '-p', '{"spec":{"template":{"metadata":{"annotations":{"round":"two"}}}}}']);
        run(['rollout', 'status', 'deploy/hello', '--timeout=90s']);
        assert.match(run(['rollout', 'history', 'deploy/hello']), /REVISION/);
        run(['rollout', 'undo', 'deploy/hello']);
        run(['rollout', 'status', 'deploy/hello', '--timeout=90s']);
        assert.equal(run(['get', 'deploy/hello', '-o', 'jsonpath={.spec.template.metadata.annotations.round}']), '');
        run(['scale', 'deploy/hello', '--replicas=1']);
      });

      test('top shows the usage of nodes, pods and containers', async () => {
        const top = (...args: string[]): Promise<string> =>
          until(`top ${args.join(' ')}`, () => cluster.kubectl(['top', ...args], { path }).stdout || undefined);
        assert.match(await top('node', '--no-headers'), /^\S+ +\d+m +\d+% +\d+Mi +\d+% *$/m);
        assert.match(await top('pod', '--no-headers'), /^hello-\S+ +\d+m +\d+Mi *$/m);
        assert.match(await top('pod', '--containers', '--no-headers'), /^hello-\S+ +\S+ +\d+m +\d+Mi *$/m);
      });

      test('explain, api-resources and auth can-i show what the server serves and allows', () => {
        assert.match(run(['explain', 'pod.spec.containers.image']), /image/i);
        assert.match(run(['api-resources']), /^deployments +deploy +apps\/v1 +true +Deployment$/m);
        assert.equal(run(['auth', 'can-i', 'create', 'pods']), 'yes\n');
        assert.equal(cluster.kubectl(['auth', 'can-i', 'create', 'pods', '--as=nobody'], { path }).stdout, 'no\n');
      });

      test('get -w shows changes', async () => {
        const child = cluster.spawn(['get', 'configmaps', '-w'], path);
        let seen = '';
        child.stdout?.on('data', (chunk: Buffer) => (seen += chunk.toString()));
        try {
          await until('the list', () => (seen.includes('kube-root-ca.crt') ? true : undefined), 30_000);
          run(['create', 'configmap', 'watched', '--from-literal=a=b']);
          await until('the event', () => (seen.includes('watched') ? true : undefined), 30_000);
        } finally {
          child.kill();
          run(['delete', 'configmap', 'watched', '--ignore-not-found']);
        }
      });

      test('apply --server-side, diff, label and delete work on a config map', () => {
        const manifest = 'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: applied}\ndata: {a: "1"}\n';
        run(['apply', '--server-side', '-f', '-'], manifest);
        const diff = cluster.kubectl(['diff', '--server-side', '-f', '-'], {
          path,
          input: manifest.replace('"1"', '"2"'),
        });
        assert.equal(diff.code, 1, diff.stderr);
        assert.match(diff.stdout, /\+ {2}a: "2"/);
        run(['label', 'configmap', 'applied', 'x=y']);
        run(['delete', 'configmap', 'applied']);
        assert.equal(cluster.kubectl(['get', 'configmap', 'applied'], { path }).code, 1);
      });

      test('delete waits until the pods are gone', async () => {
        run(['delete', '-f', join(ROOT, 'examples/hello.yaml'), '--timeout=60s']);
        await until(
          'no pods',
          () => (run(['get', 'pods', '-l', 'app=hello', '-o', 'name']) === '' ? true : undefined),
          60_000,
        );
      });
    });
  }

  test('pages of the agent require only the specific permission for each of them', async () => {
    cluster.run(['create', 'serviceaccount', 'monitor']);
    const rights = 'nodes/metrics,nodes/stats,nodes/statusz,nodes/configz';
    cluster.run(['create', 'clusterrole', 'monitor', '--verb=get', `--resource=${rights}`]);
    cluster.run([
      'create',
      'clusterrolebinding',
      'monitor',
      '--clusterrole=monitor',
      '--serviceaccount=default:monitor',
    ]);
    const token = cluster.run(['create', 'token', 'monitor']).trim();
    const seen: Record<string, number> = {};
    for (const path of [
      '/metrics',
      '/metrics/slis',
      '/stats/summary',
      '/statusz',
      '/flagz',
      '/configz',
      '/pods',
      '/logs/',
    ])
      seen[path] = (await askAgent(cluster.agentPort, path, { token })).status;
    assert.deepEqual(seen, {
      '/metrics': 200,
      '/metrics/slis': 200,
      '/stats/summary': 200,
      '/statusz': 200,
      '/flagz': 200,
      '/configz': 200,
      '/pods': 403,
      '/logs/': 403,
    });
    assert.equal((await askAgent(cluster.agentPort, '/pods', {})).status, 401);
    assert.equal((await askAgent(cluster.agentPort, '/pods', { token: `${token}x` })).status, 401);
    assert.match((await askAgent(cluster.agentPort, '/pods', { token })).text, /subresource\(s\)=\[pods proxy\]/);
  });

  test('a pod that is submitted to the agent has a mirror pod until it is deleted there', async () => {
    cluster.run(['create', 'serviceaccount', 'operator']);
    cluster.run([
      'create',
      'clusterrolebinding',
      'operator',
      '--clusterrole=cluster-admin',
      '--serviceaccount=default:operator',
    ]);
    const token = cluster.run(['create', 'token', 'operator']).trim();
    const manifest = (seconds: number): string =>
      JSON.stringify({
        apiVersion: 'v1',
        kind: 'Pod',
        metadata: { name: 'given' },
        spec: {
          terminationGracePeriodSeconds: 0,
          containers: [
            {
              name: 'main',
              image: DEMO_IMAGE,
              imagePullPolicy: 'IfNotPresent',
              command: ['sleep', String(seconds)],
            },
          ],
        },
      });
    const node = cluster.run(['get', 'nodes', '-o', 'jsonpath={.items[0].metadata.name}']);
    const mirror = (field: string): string => cluster.run(['get', 'pod', `given-${node}`, '-o', `jsonpath={${field}}`]);
    const submit = (seconds: number): ReturnType<typeof askAgent> =>
      askAgent(cluster.agentPort, '/podManifests', { token, method: 'POST', body: manifest(seconds) });
    assert.equal((await submit(1000)).status, 201);
    await until('the mirror pod', () => mirror('.status.phase') === 'Running');
    const uid = mirror('.metadata.uid');
    assert.equal((await submit(2000)).status, 201);
    await until('the mirror of what replaced it', () => {
      return mirror('.spec.containers[0].command[1]') === '2000' && mirror('.status.phase') === 'Running';
    });
    assert.notEqual(mirror('.metadata.uid'), uid);
    // Earlier output is from a previous run of the same pod.
    assert.equal((await submit(1000)).status, 201);
    await until('the mirror of what is back', () => {
      return mirror('.spec.containers[0].command[1]') === '1000' && mirror('.status.phase') === 'Running';
    });
    const gone = { token, method: 'DELETE' };
    assert.equal((await askAgent(cluster.agentPort, `/podManifests/default/given-${node}`, gone)).status, 200);
    await until('no mirror', () => cluster.run(['get', 'pods', '-o', 'name']).includes('given') === false);
  });

  test('pods survive a kill and orchlet stop; a start adopts them, and nothing is started twice', async () => {
    cluster.run(['apply', '-f', join(ROOT, 'examples/hello.yaml')]);
    cluster.run(['rollout', 'status', 'deploy/hello', '--timeout=60s']);
    const facts = (): string =>
      cluster.run([
        'get',
        'pods',
        '-l',
        'app=hello',
        '-o',
        'jsonpath={.items[*].metadata.uid} {.items[*].status.containerStatuses[*].containerID} {.items[*].status.containerStatuses[*].restartCount}',
      ]);
    const before = facts();
    const ends = [
      () => cluster.stop('SIGKILL'),
      () => Promise.resolve(run(join(ROOT, 'bin/orchlet'), ['stop', '--data-dir', cluster.directory])),
    ];
    for (const end of ends) {
      await end();
      await cluster.launch();
      await until('the pod Ready again', () => {
        const ready = cluster.run([
          'get',
          'pods',
          '-l',
          'app=hello',
          '-o',
          'jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}',
        ]);
        return ready === 'True' ? true : undefined;
      });
      assert.equal(facts(), before);
    }
    // The agent's server starts slightly later than the API server.
    const page = await until('the page', () =>
      cluster.run(['exec', 'deploy/hello', '--', 'cat', '/tmp/www/index.html']),
    );
    assert.match(page, /^hello from hello-/);
  });

  test('a changed config map becomes visible in its volume', async () => {
    cluster.run(['create', 'configmap', 'settings', '--from-literal=colour=red']);
    const pod = {
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name: 'reader' },
      spec: {
        terminationGracePeriodSeconds: 0,
        containers: [
          {
            name: 'main',
            image: DEMO_IMAGE,
            imagePullPolicy: 'IfNotPresent',
            command: ['sleep', '1000'],
            volumeMounts: [{ name: 'settings', mountPath: '/settings' }],
          },
        ],
        volumes: [{ name: 'settings', configMap: { name: 'settings' } }],
      },
    };
    cluster.run(['apply', '-f', '-'], { input: JSON.stringify(pod) });
    cluster.run(['wait', '--for=condition=Ready', 'pod/reader', '--timeout=60s']);
    assert.equal(cluster.run(['exec', 'reader', '--', 'cat', '/settings/colour']), 'red');
    cluster.run(['patch', 'configmap', 'settings', '-p', '{"data":{"colour":"blue"}}']);
    await until('the new content', () =>
      cluster.run(['exec', 'reader', '--', 'cat', '/settings/colour']) === 'blue' ? true : undefined,
    );
    cluster.run(['delete', 'pod', 'reader', '--timeout=60s']);
  });

  test('a cluster that stops leaves nothing mounted', async () => {
    const mounted = (): number => mountsBelow(join(cluster.directory, 'agent/pods')).length;
    // The API forgets a pod without a grace period at once, and its volumes are unmounted afterwards.
    await until('the volume of hello alone', () => (mounted() === 1 ? true : undefined));
    await cluster.stop();
    assert.deepEqual(mountsBelow(cluster.directory), []);
  });
});
