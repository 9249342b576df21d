/**
 * Tests the confined units of a control plane and of a node agent with a real systemd. Everything that an agent does for pods
 * works within its restrictions, and a control plane without privileges writes, recovers and is backed up.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { imageArchive } from './container-runtimes.ts';
import { until } from '../until.ts';
import { type Done, SystemdHost, whyNoSystemd } from './systemd-host.ts';
import { DEMO_IMAGE } from '../../scripts/images/demo-image.ts';

const ROOT = join(import.meta.dirname, '../..');
const SOCKET = '/run/d/docker.sock';
const DATA = '/var/lib/orchlet-controlplane';
const ADDRESS = '10.77.0.1';
/** CAP_SYS_MODULE, CAP_SYS_RAWIO, CAP_SYS_CHROOT, CAP_SYS_BOOT, CAP_SYS_TIME, CAP_MAC_ADMIN, CAP_SYSLOG, CAP_BPF. */
const REFUSED_CAPABILITIES = [16, 17, 18, 22, 25, 33, 34, 39];

const PAGE = {
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name: 'page', labels: { app: 'page' } },
  spec: {
    terminationGracePeriodSeconds: 1,
    securityContext: { fsGroup: 4321 },
    volumes: [
      { name: 'memory', emptyDir: { medium: 'Memory', sizeLimit: '1Mi' } },
      { name: 'disk', emptyDir: {} },
      { name: 'settings', configMap: { name: 'settings' } },
      { name: 'host', hostPath: { path: '/run/shared', type: 'DirectoryOrCreate' } },
    ],
    containers: [
      {
        name: 'main',
        image: DEMO_IMAGE,
        imagePullPolicy: 'IfNotPresent',
        command: [
          'sh',
          '-c',
          'mkdir /tmp/www && echo hello >/tmp/www/index.html && echo serving && exec busybox httpd -f -p 8080 -h /tmp/www',
        ],
        ports: [{ containerPort: 8080 }],
        resources: { requests: { memory: '16Mi' }, limits: { cpu: '500m', memory: '64Mi' } },
        volumeMounts: [
          { name: 'memory', mountPath: '/memory' },
          { name: 'disk', mountPath: '/part', subPath: 'part' },
          { name: 'disk', mountPath: '/disk' },
          { name: 'settings', mountPath: '/settings' },
          { name: 'host', mountPath: '/host' },
        ],
      },
    ],
  },
};
const SETTINGS = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'settings' }, data: { color: 'green' } };
const SERVICE = {
  apiVersion: 'v1',
  kind: 'Service',
  metadata: { name: 'page' },
  spec: { selector: { app: 'page' }, ports: [{ port: 80, targetPort: 8080 }] },
};
const EVICTION = { apiVersion: 'policy/v1', kind: 'Eviction', metadata: { name: 'page', namespace: 'default' } };

const skip = imageArchive === undefined ? 'ORCHLET_TEST_IMAGES is not set: scripts/test sets it' : await whyNoSystemd();
if (skip !== false) console.log(`# skipped: ${skip}`);

describe('the confined units', { skip, timeout: 280_000 }, () => {
  let host: SystemdHost;

  const kubectl = (args: string, input?: object): Done => {
    if (input !== undefined) host.write('/run/input.json', Buffer.from(JSON.stringify(input)));
    return host.sh(
      `KUBECONFIG=${DATA}/admin.kubeconfig kubectl ${args}${input === undefined ? '' : ' -f /run/input.json'}`,
    );
  };
  const done = ({ code, output }: Done): string => {
    assert.equal(code, 0, output);
    return output;
  };
  const property = (unit: string, name: string): string =>
    host.must(`systemctl show --property=${name} --value ${unit}.service`);
  const journal = (unit: string): string => host.sh(`journalctl --no-pager --lines=40 --unit=${unit}.service`).output;
  const statusOf = (unit: string): string => host.must(`cat /proc/${property(unit, 'MainPID')}/status`);
  const shell = (command: string): string => done(kubectl(`exec page -- sh -c '${command}'`));

  before(async () => {
    host = await SystemdHost.boot();
    host.must(`ip link add v0 type veth peer name v1 && ip addr add ${ADDRESS}/24 dev v0`);
    host.must('ip link set v0 up && ip link set v1 up && ip route add default via 10.77.0.2');
    const engine = JSON.stringify({ 'exec-opts': ['native.cgroupdriver=systemd'] });
    host.must(`mkdir -p /etc/docker /etc/orchlet && echo '${engine}' >/etc/docker/daemon.json`);
    host.must(`${ROOT}/scripts/docker-private start /run/d`, 90_000);
    const flags = `--container-runtime docker --docker-endpoint unix://${SOCKET} --hostname-override n1 --node-ip ${ADDRESS} --service-proxy always --proxy-mode iptables`;
    host.must(`echo 'ORCHLET_AGENT_FLAGS=${flags}' >/etc/orchlet/agent.env`);
    host.must("echo 'ORCHLET_CONTROLPLANE_FLAGS=--node-services' >/etc/orchlet/controlplane.env");
    host.write('/run/images.tar', readFileSync(imageArchive ?? ''));
    done(host.sh(`${ROOT}/scripts/install --agent`, 120_000));
  });
  after(async () => {
    await host?.remove();
  });

  test('a control plane alone starts without capabilities, as a user of its own, and serves writes and lists', () => {
    const started = host.sh('systemctl enable --now orchlet-controlplane.service', 60_000);
    assert.equal(started.code, 0, `${started.output}\n${journal('orchlet-controlplane')}`);
    const status = statusOf('orchlet-controlplane');
    assert.match(status, /^CapBnd:\s+0+$/m);
    assert.match(status, /^NoNewPrivs:\s+1$/m);
    assert.match(status, /^Seccomp:\s+2$/m);
    assert.doesNotMatch(status, /^Uid:\s+0/m);
    assert.equal(kubectl('get --raw /readyz').output, 'ok');
    for (const input of [SETTINGS, SERVICE]) done(kubectl('create', input));
    assert.match(done(kubectl('get configmaps,services -o name')), /configmap\/settings[^]*service\/page/);
  });

  test('it is backed up while it runs, and a kill loses nothing that was written', async () => {
    assert.match(done(host.sh(`orchlet backup /run/cluster.tgz --data-dir ${DATA}`)), /holds the control plane/);
    const before = property('orchlet-controlplane', 'MainPID');
    done(kubectl('create configmap last --from-literal=a=b'));
    host.must(`kill -9 ${before}`);
    await until('another process that is ready', () =>
      property('orchlet-controlplane', 'MainPID') !== before && kubectl('get --raw /readyz').output === 'ok'
        ? true
        : undefined,
    );
    assert.equal(done(kubectl('get configmap last settings -o name')), 'configmap/last\nconfigmap/settings');
  });

  test('orchlet join starts the confined agent, and the node becomes Ready', async () => {
    const line =
      done(host.sh(`orchlet token create --print-join-command --data-dir ${DATA}`))
        .split('\n')
        .find((one) => one.startsWith('orchlet join ')) ?? '';
    const joined = host.sh(`${line.replace(/https:\/\/[^ ]+/, `https://${ADDRESS}:6443`)} --node-name n1`, 60_000);
    assert.equal(joined.code, 0, `${line}\n${joined.output}\n${journal('orchlet-agent')}`);
    await until(
      'the node Ready',
      () =>
        kubectl(`get node n1 -o jsonpath='{.status.conditions[?(@.type=="Ready")].status}'`).output === 'True'
          ? true
          : undefined,
      60_000,
    ).catch((error: unknown) => assert.fail(`${String(error)}\n${journal('orchlet-agent')}`));
    const status = statusOf('orchlet-agent');
    const bounding = BigInt(`0x${/^CapBnd:\s+(\w+)$/m.exec(status)?.[1] ?? ''}`);
    for (const capability of REFUSED_CAPABILITIES)
      assert.equal((bounding >> BigInt(capability)) & 1n, 0n, String(capability));
    assert.match(status, /^NoNewPrivs:\s+1$/m);
    assert.match(status, /^Seccomp:\s+2$/m);
    assert.equal(
      host.must(`readlink /proc/${property('orchlet-agent', 'MainPID')}/ns/mnt`),
      host.must('readlink /proc/1/ns/mnt'),
      'mounts of the agent reach the runtime only in the mount namespace of the host',
    );
  });

  test('a pod runs with its volumes, which the agent mounts and owns', async () => {
    done(
      host.sh(`orchlet images import /run/images.tar --container-runtime docker --docker-endpoint unix://${SOCKET}`),
    );
    await until('the service account', () => (kubectl('get serviceaccount default').code === 0 ? true : undefined));
    done(kubectl('create', PAGE));
    const waited = kubectl('wait --for=condition=Ready pod/page --timeout=50s');
    assert.equal(
      waited.code,
      0,
      `${waited.output}\n${kubectl('describe pod page').output}\n${journal('orchlet-agent')}`,
    );
    assert.match(shell('grep " /memory " /proc/mounts'), / tmpfs /);
    assert.equal(shell('cat /settings/color'), 'green');
    assert.equal(shell('echo x >/part/file && cat /disk/part/file'), 'x');
    // RestrictSUIDSGID= would prohibit the setgid bit.
    assert.match(shell('stat -c "%a %g" /disk'), /^2\d+ 4321$/);
    assert.match(shell('cat /var/run/secrets/kubernetes.io/serviceaccount/token'), /^ey/);
    shell('echo from-pod >/host/file');
    assert.equal(host.must('cat /run/shared/file'), 'from-pod');
  });

  test('the pod’s log, a forwarded port and its service respond', async () => {
    assert.equal(done(kubectl('logs page')), 'serving');
    host.must(
      `systemd-run --unit=forward --setenv=KUBECONFIG=${DATA}/admin.kubeconfig kubectl port-forward pod/page 18080:8080`,
    );
    await until('an answer through the forwarded port', () =>
      host.sh('curl --silent --max-time 2 http://127.0.0.1:18080/').output === 'hello' ? true : undefined,
    ).catch(() => assert.fail(`${journal('forward')}\n${journal('orchlet-agent')}`));
    const address = done(kubectl("get service page -o jsonpath='{.spec.clusterIP}'"));
    await until('an answer at the address of the service', () =>
      host.sh(`curl --silent --max-time 2 http://${address}/`).output === 'hello' ? true : undefined,
    ).catch(() =>
      assert.fail(
        `${host.sh('iptables-save -t nat | grep -i -e KUBE -e orchlet').output}\n${journal('orchlet-agent')}`,
      ),
    );
  });

  test('a restart of the unit keeps the pod; an eviction terminates it and unmounts its volumes', async () => {
    const uid = done(kubectl("get pod page -o jsonpath='{.metadata.uid}'"));
    const container = "get pod page -o jsonpath='{.status.containerStatuses[0].containerID}'";
    const id = done(kubectl(container));
    host.must('systemctl restart orchlet-agent.service', 60_000);
    assert.equal(done(kubectl(container)), id);
    assert.equal(shell('cat /settings/color'), 'green');
    assert.match(host.must('cat /proc/mounts'), new RegExp(uid));
    done(kubectl('create --raw /api/v1/namespaces/default/pods/page/eviction', EVICTION));
    await until('the end of the pod', () => (kubectl('get pod page').code === 0 ? undefined : true));
    await until('no mount of it', () => (host.must('cat /proc/mounts').includes(uid) ? undefined : true));
    assert.equal(property('orchlet-agent', 'NRestarts'), '0');
    // Hosts without CAP_SYS_RESOURCE log this warning even without a confined unit.
    const lines = journal('orchlet-agent')
      .split('\n')
      .filter((line) => !line.includes('prlimit'));
    assert.doesNotMatch(lines.join('\n'), /EPERM|Operation not permitted|Referenced but unset/);
  });
});
