/**
 * Tests the units with a real systemd: readiness, watchdog, restarts and upgrades that do not stop pods, and what uninstalling
 * leaves.
 */
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { imageArchive } from './container-runtimes.ts';
import { until } from '../until.ts';
import { SystemdHost, whyNoSystemd } from './systemd-host.ts';
import { DEMO_IMAGE } from '../../scripts/images/demo-image.ts';

const ROOT = join(import.meta.dirname, '../..');
const SOCKET = '/run/d/docker.sock';
const POD = {
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name: 'stays' },
  spec: {
    terminationGracePeriodSeconds: 1,
    containers: [
      {
        name: 'main',
        image: DEMO_IMAGE,
        imagePullPolicy: 'IfNotPresent',
        command: ['sleep', '10000'],
        resources: { limits: { cpu: '500m', memory: '64Mi' } },
      },
    ],
  },
};

const skip = imageArchive === undefined ? 'ORCHLET_TEST_IMAGES is not set: scripts/test sets it' : await whyNoSystemd();
if (skip !== false) console.log(`# skipped: ${skip}`);

describe('orchlet under systemd', { skip, timeout: 280_000 }, () => {
  let host: SystemdHost;
  let container = '';

  const kubectl = (args: string) => host.sh(`KUBECONFIG=/var/lib/orchlet/admin.kubeconfig kubectl ${args}`);
  const unit = (property: string): string => host.must(`systemctl show --property=${property} --value orchlet.service`);
  /** Resolves to the pod's container and its restart count when the pod is Ready. */
  const running = (): Promise<string> =>
    until('the pod Ready', () => {
      const { code, output } = kubectl(
        `get pod stays -o jsonpath='{.status.conditions[?(@.type=="Ready")].status} {.status.containerStatuses[0].containerID} {.status.containerStatuses[0].restartCount}'`,
      );
      return code === 0 && output.startsWith('True ') ? output : undefined;
    });
  const journal = (): string => host.sh('journalctl --no-pager --lines=30 --unit=orchlet.service').output;

  before(async () => {
    host = await SystemdHost.boot();
    // This is Docker's default with cgroup v2.
    const engine = JSON.stringify({ 'exec-opts': ['native.cgroupdriver=systemd'] });
    host.must(`mkdir -p /etc/docker && echo '${engine}' >/etc/docker/daemon.json`);
    host.must(`${ROOT}/scripts/docker-private start /run/d`, 90_000);
    host.must('mkdir -p /etc/orchlet');
    const flags = `--container-runtime docker --docker-endpoint unix://${SOCKET} --hostname-override n1`;
    host.must(`echo 'ORCHLET_FLAGS=${flags}' >/etc/orchlet/orchlet.env`);
    host.write('/run/images.tar', readFileSync(imageArchive ?? ''));
  });
  after(async () => {
    await host?.remove();
  });

  test('scripts/install starts it, and systemd considers it started when the API is ready', () => {
    const installed = host.sh(`${ROOT}/scripts/install`, 120_000);
    assert.equal(installed.code, 0, `${installed.output}\n${journal()}`);
    assert.equal(unit('ActiveState'), 'active');
    assert.equal(kubectl('get --raw /readyz').output, 'ok');
    assert.equal(host.must('systemctl is-enabled orchlet.service'), 'enabled');
  });

  test('images are imported, and a pod runs', async () => {
    const imported = host.sh(
      `orchlet images import /run/images.tar --container-runtime docker --docker-endpoint unix://${SOCKET}`,
    );
    assert.equal(imported.code, 0, imported.output);
    assert.match(imported.output, /orchlet\.local\/demo:1/);
    await until('the service account', () => (kubectl('get serviceaccount default').code === 0 ? true : undefined));
    host.write('/run/pod.json', Buffer.from(JSON.stringify(POD)));
    const created = kubectl('create -f /run/pod.json');
    assert.equal(created.code, 0, created.output);
    container = await running();
    assert.match(container, / 0$/);
  });

  test('each pod is limited by its own slice, and all pods by a common one', async () => {
    const uid = kubectl("get pod stays -o jsonpath='{.metadata.uid}'").output;
    const slice = `kubepods-pod${uid.replaceAll('-', '_')}.slice`;
    const memory = existsSync('/sys/fs/cgroup/cgroup.controllers') ? 'MemoryMax' : 'MemoryLimit';
    const shown = (name: string, property: string): string =>
      host.must(`systemctl show --property=${property} --value ${name}`);
    assert.deepEqual([shown(slice, memory), shown(slice, 'CPUQuotaPerSecUSec')], ['67108864', '500ms']);
    await until('a limit of all pods', () => (Number(shown('kubepods.slice', memory)) > 0 ? true : undefined));
    const id = /docker:\/\/(\S+)/.exec(container)?.[1] ?? '';
    assert.equal(shown(`docker-${id}.scope`, 'ControlGroup'), `/kubepods.slice/${slice}/docker-${id}.scope`);
  });

  test('a restart and an upgrade in place leave pods running, and need no new token', async () => {
    host.must('systemctl restart orchlet.service', 120_000);
    assert.equal(await running(), container);
    const upgraded = host.sh(`${ROOT}/scripts/install`, 120_000);
    assert.equal(upgraded.code, 0, upgraded.output);
    assert.equal(await running(), container);
    const tokens = kubectl(
      'get secrets -n kube-system --field-selector type=bootstrap.kubernetes.io/token -o name',
    ).output;
    assert.equal(tokens.split('\n').filter((line) => line !== '').length, 1, tokens);
  });

  test('a hanging process is killed by the watchdog and restarted, while pods keep running', async () => {
    host.must('mkdir -p /etc/systemd/system/orchlet.service.d');
    host.must("printf '[Service]\\nWatchdogSec=10s\\n' >/etc/systemd/system/orchlet.service.d/test.conf");
    host.must('systemctl daemon-reload && systemctl restart orchlet.service', 120_000);
    const before = unit('MainPID');
    host.must(`kill -STOP ${before}`);
    await until('another process of the service', () => {
      const now = unit('MainPID');
      return now !== before && now !== '0' && unit('ActiveState') === 'active' ? true : undefined;
    });
    assert.notEqual(unit('NRestarts'), '0');
    assert.equal(await running(), container);
  });

  test('scripts/uninstall --purge ends the pods and leaves nothing', () => {
    const gone = host.sh(`${ROOT}/scripts/uninstall --purge`, 120_000);
    assert.equal(gone.code, 0, gone.output);
    assert.equal(host.must(`docker -H unix://${SOCKET} ps -q --filter name=k8s_main_stays`), '');
    const left = host.must(
      'ls -d /etc/orchlet /var/lib/orchlet/* /usr/local/lib/orchlet /usr/local/bin/orchlet /etc/systemd/system/orchlet*.service 2>/dev/null || true',
    );
    assert.equal(left, '');
  });
});
