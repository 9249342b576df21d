import assert from 'node:assert/strict';
import { test } from 'node:test';
import { checkPodNetwork } from '../../../../cli/doctor/pod-network-checks.ts';

const places = { configurationDirectory: '/none', pluginDirectories: ['/none'] };
const lines = async (problems: Readonly<Record<'vxlan' | 'wireguard', string>>, usesCni: boolean, instead = '') =>
  (
    await checkPodNetwork({
      ...{ places, usesCni },
      network: {
        linkSupport: (kind) =>
          Promise.resolve({ problem: problems[kind], substitute: kind === 'wireguard' ? instead : '' }),
      },
    })
  ).map(({ name, verdict, text, remedy = '' }) => `${verdict} ${name}: ${text} -> ${remedy}`);

test('doctor finds what the pod network needs', async () => {
  assert.deepEqual(await lines({ vxlan: '', wireguard: '' }, false), [
    'ok vxlan: available -> ',
    'ok wireguard: available -> ',
  ]);
  assert.equal(
    (await lines({ vxlan: '', wireguard: '' }, false, 'wireguard-go is used'))[1],
    'ok wireguard: wireguard-go is used -> ',
  );
});

test('doctor names what the kernel and the host lack, with a remedy', async () => {
  const problems = {
    vxlan: 'the kernel has no VXLAN (modprobe vxlan)',
    wireguard: 'the kernel has no WireGuard (modprobe wireguard), and wireguard-go is not installed',
  };
  assert.deepEqual(await lines(problems, true), [
    'warn vxlan: the kernel has no VXLAN: pods of other hosts cannot be reached by --pod-network=vxlan -> modprobe vxlan',
    'warn wireguard: the kernel has no WireGuard, and wireguard-go is not installed: only --pod-network=wireguard needs it -> modprobe wireguard',
    'warn CNI plugins: missing: bridge, host-local, portmap, loopback; containerd and CRI-O have no network of pods without them -> apt-get install containernetworking-plugins',
  ]);
});
