/**
 * Tests how pods use services in a cluster of one node: by name and address, also from the service's own pods, and from outside
 * through a node port.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import dnsPacket from 'dns-packet';
import { skipWithoutDocker } from './container-runtimes.ts';
import { kubectls } from './kubectl.ts';
import { RunningCluster } from './running-cluster.ts';
import { until } from '../until.ts';

const ROOT = join(import.meta.dirname, '../..');
const hasIptables = spawnSync('iptables', ['-t', 'nat', '-S', 'PREROUTING']).status === 0;
const skip =
  skipWithoutDocker !== false
    ? skipWithoutDocker
    : !hasIptables
      ? 'iptables cannot be used here'
      : kubectls().length === 0
        ? 'no kubectl on PATH'
        : false;

describe('services on a node', { skip, timeout: 200_000 }, () => {
  let cluster: RunningCluster;
  let pod = '';

  before(async () => {
    cluster = await RunningCluster.start([
      ...['--cluster-cidr', '10.214.0.0/16', '--service-cluster-ip-range', '10.215.0.0/16'],
    ]);
    cluster.run(['apply', '-f', join(ROOT, 'examples/hello.yaml')]);
    cluster.run(['rollout', 'status', 'deploy/hello', '--timeout=60s']);
    pod = cluster.run(['get', 'pods', '-l', 'app=hello', '-o', 'jsonpath={.items[0].metadata.name}']);
  });
  after(async () => {
    await cluster?.remove();
  });

  const inPod = (command: string): string => cluster.run(['exec', pod, '--', 'sh', '-c', command]);
  /** Repeats a command in a pod until its output is as expected, because the rules are updated shortly after a change. */
  const soonInPod = (what: string, command: string, expected: RegExp): Promise<string> =>
    until(
      what,
      () => {
        // Pods come and go when the deployment is scaled.
        const done = cluster.kubectl(['exec', 'deploy/hello', '--', 'sh', '-c', command]);
        return expected.test(done.stdout) ? done.stdout : undefined;
      },
      30_000,
    );

  test('have names that pods resolve, and addresses that they reach, even from their only endpoint', async () => {
    assert.match(inPod('cat /etc/resolv.conf'), /nameserver 10\.215\.0\.10/);
    assert.match(
      await soonInPod('its own name', 'timeout 5 wget -qO- http://hello/', /hello from/),
      /hello from hello-/,
    );
    assert.match(inPod('nslookup kubernetes.default.svc.cluster.local'), /Address: 10\.215\.0\.1\b/);
  });

  test('lead to the API server by the address that pods know', () => {
    assert.match(inPod('echo $KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT'), /^10\.215\.0\.1:443$/m);
    const answered = spawnSync('curl', ['-sk', '--max-time', '10', 'https://10.215.0.1/livez'], { encoding: 'utf8' });
    if (answered.error === undefined) assert.equal(answered.stdout, 'ok');
  });

  test('spread over all endpoints, by a node port too, and are refused without one', async () => {
    cluster.run(['scale', 'deploy/hello', '--replicas=3']);
    cluster.run(['rollout', 'status', 'deploy/hello', '--timeout=60s']);
    cluster.run(['expose', 'deploy/hello', '--name=outside', '--type=NodePort', '--port=80', '--target-port=8080']);
    const port = cluster.run(['get', 'service', 'outside', '-o', 'jsonpath={.spec.ports[0].nodePort}']);
    const host = cluster.run([
      ...['get', 'nodes', '-o'],
      'jsonpath={.items[0].status.addresses[?(@.type=="InternalIP")].address}',
    ]);
    const seen = new Set<string>();
    await until('all three endpoints', () => {
      const done = cluster.kubectl(['exec', pod, '--', 'timeout', '5', 'wget', '-qO-', `http://${host}:${port}/`]);
      if (done.code === 0) seen.add(done.stdout);
      return seen.size === 3 ? true : undefined;
    });
    cluster.run(['scale', 'deploy/hello', '--replicas=1']);
    cluster.run(['patch', 'service', 'outside', '-p', '{"spec":{"selector":{"app":"nobody"}}}']);
    pod = cluster.run(['get', 'pods', '-l', 'app=hello', '-o', 'jsonpath={.items[0].metadata.name}']);
    const address = cluster.run(['get', 'service', 'outside', '-o', 'jsonpath={.spec.clusterIP}']);
    for (const target of [`${host}:${port}`, address])
      await until(`a refusal of ${target}`, () => {
        const [running = ''] = cluster
          .run(['get', 'pods', '-l', 'app=hello', '-o', 'jsonpath={.items[*].metadata.name}'])
          .split(' ');
        const done = cluster.kubectl(['exec', running, '--', 'timeout', '5', 'wget', '-qO-', `http://${target}/`]);
        return /refused/.test(done.stderr) ? true : undefined;
      });
  });

  test('leave other domains to the name servers that an administrator names', async () => {
    const server = createSocket('udp4');
    server.on('message', (message, peer) => {
      const { id = 0, questions = [] } = dnsPacket.decode(message);
      const [{ name = '', type = 'A' } = {}] = questions;
      const answers = type === 'A' ? [{ type: 'A' as const, name, ttl: 60, data: '203.0.113.77' }] : [];
      server.send(dnsPacket.encode({ type: 'response', id, questions, answers }), peer.port, peer.address);
    });
    await new Promise<void>((resolve) => server.bind(0, '127.0.0.1', resolve));
    try {
      const stubDomains = JSON.stringify({ 'acme.test': [`127.0.0.1:${server.address().port}`] });
      cluster.run([
        'create',
        'configmap',
        'kube-dns',
        '-n',
        'kube-system',
        `--from-literal=stubDomains=${stubDomains}`,
      ]);
      await soonInPod('the other domain', 'nslookup www.acme.test', /203\.0\.113\.77/);
    } finally {
      server.close();
    }
  });

  test('of type LoadBalancer are reached at the address of the node', async () => {
    cluster.run([
      'expose',
      'deploy/hello',
      '--name=balanced',
      '--type=LoadBalancer',
      '--port=8099',
      '--target-port=8080',
    ]);
    cluster.run(['expose', 'deploy/hello', '--name=late', '--type=LoadBalancer', '--port=8099', '--target-port=8080']);
    const addressOf = (name: string): string =>
      cluster.run(['get', 'service', name, '-o', 'jsonpath={.status.loadBalancer.ingress[*].ip}']);
    const address = await until('an address', () => addressOf('balanced') || undefined);
    await until('an answer', () => {
      const done = spawnSync('curl', ['-s', '--max-time', '5', `http://${address}:8099/`], { encoding: 'utf8' });
      return done.stdout.startsWith('hello from');
    });
    await soonInPod('the load balancer', `timeout 5 wget -qO- http://${address}:8099/`, /hello from/);
    assert.equal(addressOf('late'), '');
    assert.match(cluster.run(['describe', 'service', 'late']), /in use by the service default\/balanced/);
    cluster.run(['delete', 'service', 'balanced', '--timeout=20s']);
    assert.equal(await until('the address of the other service', () => addressOf('late') || undefined), address);
  });

  test('leave no rules behind', async () => {
    await cluster.stop('SIGINT');
    const { stdout } = spawnSync('iptables-save', [], { encoding: 'utf8' });
    assert.doesNotMatch(stdout, /ORC-/);
    const tables = spawnSync('nft', ['list', 'tables'], { encoding: 'utf8' });
    if (tables.error === undefined) assert.doesNotMatch(tables.stdout, /orchlet-services/);
  });
});
