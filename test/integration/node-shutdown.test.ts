/**
 * Tests graceful node shutdown with a real login manager: systemd-logind on a private bus, where a fake replaces the systemd
 * that would power off the machine.
 */
import assert from 'node:assert/strict';
import { type ChildProcess, execFile, spawn, spawnSync } from 'node:child_process';
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { get } from 'node:https';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { promisify } from 'node:util';
import type { Agent } from '../../agent/main.ts';
import { keepAlive } from '../../api/machinery/clock.ts';
import { nodes, pods, serviceAccounts } from '../../api/client/resources.ts';
import type { KubeObject } from '../../api/meta/object.ts';
import { type ControlPlane, startControlPlane } from '../../controlplane/main.ts';
import { type BusAnswer, type BusCall, serveOnBus } from '../fakes/bus-service.ts';
import { startAgentInMemory } from '../fakes/agent-in-memory.ts';
import { unmountBelow } from '../mounts.ts';
import { run } from './running-cluster.ts';
import { until } from '../until.ts';
import { temporaryFolder } from '../temporary-folder.ts';

const LOGIND = '/lib/systemd/systemd-logind';
const TOOLS = ['dbus-daemon', 'busctl', 'systemd-inhibit', 'unshare'];

function whyNot(): string | false {
  if (process.getuid?.() !== 0) return 'a login manager of the test needs root';
  const missing = TOOLS.filter((tool) => spawnSync('sh', ['-c', `command -v ${tool}`]).status !== 0);
  if (missing.length > 0 || !existsSync(LOGIND))
    return `this host lacks ${[...missing, ...(existsSync(LOGIND) ? [] : [LOGIND])].join(', ')}: apt-get install systemd dbus`;
  if (spawnSync('unshare', ['-m', 'true']).status !== 0) return 'this host makes no mount namespaces';
  return false;
}

const busConfiguration = (socket: string): string => `<busconfig>
  <type>system</type>
  <listen>unix:path=${socket}</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/>
    <allow eavesdrop="true"/>
    <allow own="*"/>
  </policy>
</busconfig>
`;

const locks = (): number => (run('systemd-inhibit', ['--list', '--no-legend']).match(/kubelet/g) ?? []).length;

interface Status {
  readonly status?: {
    readonly phase?: string;
    readonly reason?: string;
    readonly message?: string;
    readonly conditions?: readonly { type: string; status: string; reason?: string; message?: string }[];
    readonly containerStatuses?: readonly { state?: { terminated?: { finishedAt?: string } } }[];
  };
}

describe('a host that goes down', { skip: whyNot(), timeout: 120_000 }, () => {
  const alive = keepAlive();
  const directory = temporaryFolder();
  const children: ChildProcess[] = [];
  /** The content of the state file when the host is powered off. */
  const statesAtPowerOff: string[] = [];
  let systemd: Socket;
  const previousBus = process.env['DBUS_SYSTEM_BUS_ADDRESS'];
  let plane: ControlPlane;
  let agent: Agent;

  /** Responds like systemd to a login manager that is about to power off. */
  function answer(call: BusCall): BusAnswer {
    if (call.member === 'Get') return { signature: 's', value: 'loaded', variant: true };
    if (call.member !== 'StartUnit') return undefined;
    statesAtPowerOff.push(readFileSync(join(directory, 'root', 'graceful_node_shutdown_state'), 'utf8'));
    return { signature: 'o', value: '/org/freedesktop/systemd1/job/1' };
  }

  before(async () => {
    const socket = join(directory, 'bus');
    writeFileSync(join(directory, 'bus.conf'), busConfiguration(socket));
    process.env['DBUS_SYSTEM_BUS_ADDRESS'] = `unix:path=${socket}`;
    children.push(
      spawn('dbus-daemon', [`--config-file=${join(directory, 'bus.conf')}`, '--nofork', '--nopidfile'], {
        stdio: 'ignore',
      }),
    );
    systemd = await until('a bus', () => serveOnBus(socket, 'org.freedesktop.systemd1', answer));
    // The files are in a private mount, so the host's login manager is not affected.
    const start = `mount -t tmpfs t /run/systemd && mkdir -p /run/systemd/system /run/systemd/seats /run/systemd/users /run/systemd/sessions /run/systemd/inhibit && exec ${LOGIND}`;
    children.push(spawn('unshare', ['-m', 'sh', '-c', `mkdir -p /run/systemd; ${start}`], { stdio: 'ignore' }));
    await until('a login manager', () => locks() === 0 || undefined);

    plane = await startControlPlane({ memory: true });
    const kubeconfig = join(directory, 'kubeconfig');
    writeFileSync(kubeconfig, plane.kubeconfig);
    agent = await startAgentInMemory(directory, {
      kubeconfig,
      // This is within the default limit of five seconds of the login manager.
      shutdownGracePeriod: 5000,
      shutdownGracePeriodCriticalPods: 2000,
    });
  });

  after(async () => {
    await agent?.close();
    await plane?.close();
    systemd?.destroy();
    for (const child of children.toReversed()) child.kill('SIGKILL');
    if (previousBus === undefined) delete process.env['DBUS_SYSTEM_BUS_ADDRESS'];
    else process.env['DBUS_SYSTEM_BUS_ADDRESS'] = previousBus;
    unmountBelow(directory);
    rmSync(directory, { recursive: true, force: true });
    alive.cancel();
  });

  const podOf = (name: string, more: object): KubeObject => ({
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name, namespace: 'default' },
    spec: { nodeName: 'n1', containers: [{ name: 'main', image: 'shell:1', command: ['sleep', '1000'] }], ...more },
  });
  const statusOf = async (name: string): Promise<Status['status']> =>
    ((await plane.client.get(pods, 'default', name)) as Status).status;
  const readyOfNode = async () =>
    ((await plane.client.get(nodes, '', 'n1')) as Status).status?.conditions?.find(({ type }) => type === 'Ready');

  test('is delayed by an inhibitor lock of the node agent', async () => {
    await until('the lock', () => locks() === 1 || undefined);
  });

  test('waits for the pods, which terminate by priority; the node is not ready and accepts no new pods', async () => {
    await until('the service account', () => plane.client.get(serviceAccounts, 'default', 'default'));
    await plane.client.create(pods, 'default', podOf('plain', {}));
    await plane.client.create(pods, 'default', podOf('critical', { priorityClassName: 'system-node-critical' }));
    for (const name of ['plain', 'critical'])
      await until(`${name} running`, async () => ((await statusOf(name))?.phase === 'Running' ? true : undefined));
    // The call must not block, because the fake responds in this process.
    const asked = promisify(execFile)('busctl', [
      ...['--system', 'call', 'org.freedesktop.login1', '/org/freedesktop/login1', 'org.freedesktop.login1.Manager'],
      ...['PowerOff', 'b', 'false'],
    ]);
    await asked;
    await until('a node that is not ready', async () => {
      const ready = await readyOfNode();
      if (ready?.status !== 'False') return undefined;
      assert.deepEqual([ready.reason, ready.message], ['KubeletNotReady', 'node is shutting down']);
      return true;
    });
    await plane.client.create(pods, 'default', podOf('late', {}));
    await until('the refusal', async () => {
      const status = await statusOf('late');
      if (status?.phase !== 'Failed') return undefined;
      assert.deepEqual(
        [status.reason, status.message],
        ['NodeShutdown', 'Pod was rejected: Pod was rejected as the node is shutting down.'],
      );
      return true;
    });
    const ended = (name: string) =>
      until(`the end of ${name}`, async () => {
        const status = await statusOf(name);
        return status?.phase === 'Failed' ? status : undefined;
      });
    for (const name of ['plain', 'critical']) {
      const { reason, message, conditions = [] } = await ended(name);
      assert.deepEqual([reason, message], ['Terminated', 'Pod was terminated in response to imminent node shutdown.']);
      const disruption = conditions.find(({ type }) => type === 'DisruptionTarget');
      assert.deepEqual([disruption?.status, disruption?.reason], ['True', 'TerminationByKubelet']);
    }
  });

  test('powers off when the last pod has terminated, and the agent reports that time', async () => {
    const [state = '{}'] = await until('the power off', () =>
      statesAtPowerOff.length > 0 ? statesAtPowerOff : undefined,
    );
    const { startTime = '', endTime = '' } = JSON.parse(state) as { startTime?: string; endTime?: string };
    assert.ok(startTime !== '' && endTime >= startTime, state);
    assert.equal(locks(), 0);
    const page = await new Promise<string>((resolve, reject) => {
      get({ host: '127.0.0.1', port: agent.port, path: '/metrics', rejectUnauthorized: false }, (response) => {
        let text = '';
        response.on('data', (chunk: Buffer) => (text += chunk.toString()));
        response.on('end', () => resolve(text));
      }).on('error', reject);
    });
    const figure = (which: string): number =>
      Number(new RegExp(`^kubelet_graceful_shutdown_${which}_time_seconds (\\S+)$`, 'm').exec(page)?.[1]);
    assert.ok(figure('start') > 0 && figure('end') >= figure('start'), page.slice(0, 200));
  });
});
