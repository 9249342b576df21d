/** Writes the `/etc/hosts` of a pod's containers. Pods on the host's network get a copy of the host's file. */
import { mkdir, readFile } from 'node:fs/promises';
import { basename, dirname } from 'node:path';
import type { Pod } from '../../base/model/pod.ts';
import { inDirectory } from '../../base/files/beneath.ts';
import type { PodHostname } from './dns.ts';

function etcHosts(pod: Pod, ips: readonly string[], name: PodHostname, hostFile: string): string {
  const lines = pod.spec.hostNetwork === true ? hostLines(hostFile) : podLines(ips, name);
  const aliases = pod.spec.hostAliases ?? [];
  if (aliases.length > 0) lines.push('', '# Entries added by HostAliases.');
  for (const { ip, hostnames = [] } of aliases) lines.push(`${ip}\t${hostnames.join('\t')}`);
  return `${lines.join('\n')}\n`;
}

function hostLines(hostFile: string): string[] {
  return ['# Kubernetes-managed hosts file (host network).', ...hostFile.replace(/\n$/, '').split('\n')];
}

function podLines(ips: readonly string[], name: PodHostname): string[] {
  const short = name.hostname.split('.')[0] ?? name.hostname;
  return [
    '# Kubernetes-managed hosts file.',
    '127.0.0.1\tlocalhost',
    '::1\tlocalhost ip6-localhost ip6-loopback',
    'fe00::0\tip6-localnet',
    'fe00::0\tip6-mcastprefix',
    'fe00::1\tip6-allnodes',
    'fe00::2\tip6-allrouters',
    ...ips.map((ip) => (name.domain === '' ? `${ip}\t${name.hostname}` : `${ip}\t${short}.${name.domain}\t${short}`)),
  ];
}

/** Overwrites the file in place, because containers have it mounted. */
export async function writeEtcHosts(path: string, pod: Pod, ips: readonly string[], name: PodHostname): Promise<void> {
  const host = pod.spec.hostNetwork === true ? await readFile('/etc/hosts', 'utf8') : '';
  await mkdir(dirname(path), { recursive: true, mode: 0o750 });
  const content = etcHosts(pod, ips, name, host);
  await inDirectory(dirname(path), (directory) => directory.overwriteFile(basename(path), { content, mode: 0o644 }));
}
