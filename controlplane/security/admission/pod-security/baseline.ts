/** Implements the checks of the baseline level, in the order in which violations are listed. */
import { ownMember } from '../../../../api/meta/own-member.ts';
import { quote } from '../../../../api/meta/field-error.ts';
import {
  allContainers,
  containerList,
  namesOf,
  plural,
  quoted,
  setters,
  unique,
  type Check,
  type Container,
} from './check.ts';
import {
  APP_ARMOR_PREFIX,
  SECCOMP_CONTAINER_PREFIX,
  SECCOMP_POD_ANNOTATION,
} from '../../../../api/kinds/pod-annotations.ts';

const DEFAULT_CAPABILITIES = new Set([
  'AUDIT_WRITE',
  'CHOWN',
  'DAC_OVERRIDE',
  'FOWNER',
  'FSETID',
  'KILL',
  'MKNOD',
  'NET_BIND_SERVICE',
  'SETFCAP',
  'SETGID',
  'SETPCAP',
  'SETUID',
  'SYS_CHROOT',
]);

/** Allows RuntimeDefault and Localhost, in fields and in the annotations of older releases. */
export const appArmorProfile: Check = ({ metadata, spec }) => {
  const isBad = (type: string | undefined): type is string =>
    type !== undefined && type !== 'RuntimeDefault' && type !== 'Localhost';
  const values: string[] = [];
  const podType = spec.securityContext?.appArmorProfile?.type;
  if (isBad(podType)) values.push(podType);
  const containers = namesOf(spec, (container) => {
    const type = container.securityContext?.appArmorProfile?.type;
    if (!isBad(type)) return false;
    values.push(type);
    return true;
  });
  const who = setters(isBad(podType), containers);
  const annotations = Object.entries(metadata.annotations ?? {})
    .filter(
      ([key, value]) =>
        key.startsWith(APP_ARMOR_PREFIX) &&
        value !== '' &&
        value !== 'runtime/default' &&
        !value.startsWith('localhost/'),
    )
    .map(([key, value]) => `${key}=${quote(value)}`)
    .sort();
  if (annotations.length > 0) who.push(plural(annotations.length, 'annotation'));
  if (who.length === 0) return undefined;
  const bad = [...unique(values), ...annotations];
  return {
    reason: plural(bad.length, 'forbidden AppArmor profile'),
    detail: `${who.join(' and ')} must not set AppArmor profile type to ${quoted(bad)}`,
  };
};

/** Allows containers to add only the capabilities that container runtimes grant by default. */
export const baselineCapabilities: Check = ({ spec }) => {
  const values: string[] = [];
  const containers = namesOf(spec, (container) => {
    const bad = (container.securityContext?.capabilities?.add ?? []).filter((one) => !DEFAULT_CAPABILITIES.has(one));
    values.push(...bad);
    return bad.length > 0;
  });
  if (containers.length === 0) return undefined;
  return {
    reason: 'non-default capabilities',
    detail: `${containerList(containers)} must not include ${quoted(unique(values))} in securityContext.capabilities.add`,
  };
};

/** Forbids hostNetwork, hostPID and hostIPC. */
export const hostNamespaces: Check = ({ spec }) => {
  const set = (['hostNetwork', 'hostPID', 'hostIPC'] as const).filter((field) => spec[field] === true);
  return set.length === 0
    ? undefined
    : { reason: 'host namespaces', detail: set.map((field) => `${field}=true`).join(', ') };
};

/** Forbids volumes of type hostPath. */
export const hostPathVolumes: Check = ({ spec }) => {
  const names = (spec.volumes ?? [])
    .filter((volume) => volume.hostPath !== undefined && volume.hostPath !== null)
    .map((volume) => volume.name);
  return names.length === 0
    ? undefined
    : { reason: 'hostPath volumes', detail: `${plural(names.length, 'volume')} ${quoted(names)}` };
};

/** Forbids host ports other than 0. */
export const hostPorts: Check = ({ spec }) => {
  const ports: string[] = [];
  const containers = namesOf(spec, (container) => {
    const used = (container.ports ?? []).flatMap((port) =>
      port.hostPort === undefined || port.hostPort === 0 ? [] : [String(port.hostPort)],
    );
    ports.push(...used);
    return used.length > 0;
  });
  if (containers.length === 0) return undefined;
  const list = unique(ports);
  return {
    reason: 'hostPort',
    detail: `${containerList(containers)} ${plural(containers.length, 'uses', 'use')} ${plural(list.length, 'hostPort')} ${list.join(', ')}`,
  };
};

function probeHosts(container: Container): string[] {
  const handlers = [
    container.livenessProbe,
    container.readinessProbe,
    container.startupProbe,
    container.lifecycle?.postStart,
    container.lifecycle?.preStop,
  ];
  return handlers
    .flatMap((one) => [one?.httpGet?.host, one?.tcpSocket?.host])
    .filter((host): host is string => host !== undefined && host !== null && host !== '');
}

/** Forbids hosts in probes and lifecycle hooks, from v1.34 on. */
export const probeAndLifecycleHosts: Check = ({ spec, minor }) => {
  if (minor < 34) return undefined;
  const hosts: string[] = [];
  const names = namesOf(spec, (container) => {
    const used = probeHosts(container);
    hosts.push(...used);
    return used.length > 0;
  });
  if (names.length === 0) return undefined;
  const containers = unique(names);
  const list = unique(hosts);
  return {
    reason: 'probe or lifecycle host',
    detail: `${containerList(containers)} ${plural(containers.length, 'uses', 'use')} probe or lifecycle ${plural(list.length, 'host')} ${quoted(list)}`,
  };
};

/** Forbids privileged containers. */
export const privileged: Check = ({ spec }) => {
  const containers = namesOf(spec, (container) => container.securityContext?.privileged === true);
  if (containers.length === 0) return undefined;
  return { reason: 'privileged', detail: `${containerList(containers)} must not set securityContext.privileged=true` };
};

/** Forbids any `procMount` but Default; from v1.35 on, a pod with a user namespace of its own may have another. */
export const procMount: Check = (input) =>
  input.minor >= 35 && input.spec.hostUsers === false ? undefined : defaultProcMount(input);

/** Forbids any `procMount` but Default. */
export const defaultProcMount: Check = ({ spec }) => {
  const values: string[] = [];
  const containers = namesOf(spec, (container) => {
    const value = container.securityContext?.procMount ?? '';
    if (value === '' || value === 'Default') return false;
    values.push(value);
    return true;
  });
  if (containers.length === 0) return undefined;
  return {
    reason: 'procMount',
    detail: `${containerList(containers)} must not set securityContext.procMount to ${quoted(unique(values))}`,
  };
};

/** Allows only the SELinux types of containers (`container_t` and others), and neither user nor role. */
export const seLinuxOptions: Check = ({ spec, minor }) => {
  const allowed = new Set([
    '',
    'container_t',
    'container_init_t',
    'container_kvm_t',
    ...(minor >= 31 ? ['container_engine_t'] : []),
  ]);
  const types: string[] = [];
  let hasUser = false;
  let hasRole = false;
  const isBad = (options: { type?: string; user?: string; role?: string } | undefined | null): boolean => {
    if (options === undefined || options === null) return false;
    const isBadType = !allowed.has(options.type ?? '');
    if (isBadType) types.push(options.type ?? '');
    const user = (options.user ?? '') !== '';
    const role = (options.role ?? '') !== '';
    hasUser ||= user;
    hasRole ||= role;
    return isBadType || user || role;
  };
  const pod = isBad(spec.securityContext?.seLinuxOptions);
  const who = setters(
    pod,
    namesOf(spec, (container) => isBad(container.securityContext?.seLinuxOptions)),
  );
  if (who.length === 0) return undefined;
  const list = unique(types);
  const data = [
    ...(list.length > 0 ? [`${plural(list.length, 'type')} ${quoted(list)}`] : []),
    ...(hasUser ? ['user may not be set'] : []),
    ...(hasRole ? ['role may not be set'] : []),
  ];
  return {
    reason: 'seLinuxOptions',
    detail: `${who.join(' and ')} set forbidden securityContext.seLinuxOptions: ${data.join('; ')}`,
  };
};

/** Forbids unsafe profiles in the annotations by which older clients set the seccomp profile. */
const seccompAnnotations: Check = ({ metadata, spec }) => {
  const keys = [SECCOMP_POD_ANNOTATION, ...allContainers(spec).map(({ name }) => `${SECCOMP_CONTAINER_PREFIX}${name}`)];
  const bad = keys.flatMap((key) => {
    const value = ownMember(metadata.annotations, key);
    const isGood =
      value === undefined ||
      value === 'runtime/default' ||
      value === 'docker/default' ||
      value.startsWith('localhost/');
    return isGood ? [] : [`${key}=${quote(value)}`];
  });
  if (bad.length === 0) return undefined;
  const list = unique(bad);
  return { reason: 'seccompProfile', detail: `forbidden ${plural(list.length, 'annotation')} ${list.join(', ')}` };
};

/** Allows RuntimeDefault and Localhost, or no profile; reads annotations before v1.19. */
export const baselineSeccomp: Check = (input) => {
  const { spec, minor } = input;
  if (minor < 19) return seccompAnnotations(input);
  const isBad = (type: string | undefined): boolean =>
    type !== undefined && type !== 'RuntimeDefault' && type !== 'Localhost';
  const values: string[] = [];
  const podType = spec.securityContext?.seccompProfile?.type;
  if (podType !== undefined && isBad(podType)) values.push(podType);
  const containers = namesOf(spec, (container) => {
    const type = container.securityContext?.seccompProfile?.type;
    if (type === undefined || !isBad(type)) return false;
    values.push(type);
    return true;
  });
  const who = setters(isBad(podType), containers);
  if (who.length === 0) return undefined;
  return {
    reason: 'seccompProfile',
    detail: `${who.join(' and ')} must not set securityContext.seccompProfile.type to ${quoted(unique(values))}`,
  };
};

/** Safe sysctls, with the minor version since which they are safe. */
const SYSCTLS: ReadonlyMap<string, number> = new Map(
  Object.entries({
    'kernel.shm_rmid_forced': 0,
    'net.ipv4.ip_local_port_range': 0,
    'net.ipv4.tcp_syncookies': 0,
    'net.ipv4.ping_group_range': 0,
    'net.ipv4.ip_unprivileged_port_start': 0,
    'net.ipv4.ip_local_reserved_ports': 27,
    'net.ipv4.tcp_keepalive_time': 29,
    'net.ipv4.tcp_fin_timeout': 29,
    'net.ipv4.tcp_keepalive_intvl': 29,
    'net.ipv4.tcp_keepalive_probes': 29,
    'net.ipv4.tcp_rmem': 32,
    'net.ipv4.tcp_wmem': 32,
  }),
);

/** Allows the namespaced sysctls that each version lists as safe. */
export const sysctls: Check = ({ spec, minor }) => {
  const bad = (spec.securityContext?.sysctls ?? [])
    .map((one) => one.name)
    .filter((name) => {
      const since = SYSCTLS.get(name);
      return since === undefined || since > minor;
    });
  return bad.length === 0 ? undefined : { reason: 'forbidden sysctls', detail: bad.join(', ') };
};

/** Forbids HostProcess containers of Windows. */
export const windowsHostProcess: Check = ({ spec }) => {
  const pod = spec.securityContext?.windowsOptions?.hostProcess === true;
  const who = setters(
    pod,
    namesOf(spec, (container) => container.securityContext?.windowsOptions?.hostProcess === true),
  );
  if (who.length === 0) return undefined;
  return {
    reason: 'hostProcess',
    detail: `${who.join(' and ')} must not set securityContext.windowsOptions.hostProcess=true`,
  };
};
