/** Lists every command, with the line that `orchlet --help` shows. */
import type { CommandRow } from './command-line/command.ts';

/** The rows in the order of `--help`. */
export const commands: readonly CommandRow[] = [
  {
    name: 'up',
    summary: 'run control plane and agent: a cluster of one node',
    load: async () => (await import('./commands/up.ts')).up,
  },
  {
    name: 'controlplane',
    summary: 'run the control plane alone',
    load: async () => (await import('./commands/controlplane.ts')).controlplane,
  },
  { name: 'agent', summary: 'run the node agent alone', load: async () => (await import('./commands/agent.ts')).agent },
  {
    name: 'agent explain-eviction',
    summary: 'show what the agent would evict, and why',
    load: async () => (await import('./commands/explain-eviction.ts')).explainEviction,
  },
  {
    name: 'token create',
    summary: 'create a bootstrap token for nodes that join',
    load: async () => (await import('./commands/token.ts')).tokenCreate,
  },
  {
    name: 'token list',
    summary: 'show the bootstrap tokens',
    load: async () => (await import('./commands/token.ts')).tokenList,
  },
  {
    name: 'token delete',
    summary: 'delete bootstrap tokens',
    load: async () => (await import('./commands/token.ts')).tokenDelete,
  },
  {
    name: 'join',
    summary: 'make this host a node of a cluster',
    load: async () => (await import('./commands/join.ts')).join,
  },
  {
    name: 'stop',
    summary: 'stop the control plane and the agent of this host',
    load: async () => (await import('./commands/stop.ts')).stop,
  },
  {
    name: 'reset',
    summary: 'remove from this host what orchlet has created there',
    load: async () => (await import('./commands/reset.ts')).reset,
  },
  {
    name: 'backup',
    summary: 'write the data of the control plane to a file',
    load: async () => (await import('./commands/backup.ts')).backup,
  },
  {
    name: 'restore',
    summary: 'restore the data of a backup',
    load: async () => (await import('./commands/backup.ts')).restore,
  },
  {
    name: 'promote',
    summary: 'make the standby of this host the first control plane',
    load: async () => (await import('./commands/promote.ts')).promote,
  },
  {
    name: 'demote',
    summary: 'let a former first control plane become a standby',
    load: async () => (await import('./commands/promote.ts')).demote,
  },
  {
    name: 'migrate',
    summary: 'move a cluster between the database and etcd',
    load: async () => (await import('./commands/migrate.ts')).migrate,
  },
  {
    name: 'etcd members',
    summary: 'show the members of the etcd that orchlet runs',
    load: async () => (await import('./commands/etcd.ts')).etcdMembers,
  },
  {
    name: 'etcd remove',
    summary: 'remove a member from the etcd that orchlet runs',
    load: async () => (await import('./commands/etcd.ts')).etcdRemove,
  },
  {
    name: 'etcd snapshot',
    summary: 'save the data of the etcd that orchlet runs to a file',
    load: async () => (await import('./commands/etcd.ts')).etcdSnapshot,
  },
  {
    name: 'images import',
    summary: 'load an image archive into the container runtime',
    load: async () => (await import('./commands/images.ts')).imagesImport,
  },
  {
    name: 'doctor',
    summary: 'check this host, with remedies',
    load: async () => (await import('./commands/doctor.ts')).doctor,
  },
  {
    name: 'certs check',
    summary: 'show when certificates expire',
    load: async () => (await import('./commands/certs.ts')).certsCheck,
  },
  {
    name: 'certs rotate',
    summary: 'renew the certificates now',
    load: async () => (await import('./commands/certs.ts')).certsRotate,
  },
  {
    name: 'certs approve',
    summary: 'approve certificates that nodes have requested',
    load: async () => (await import('./commands/approve.ts')).certsApprove,
  },
  {
    name: 'certs rotate-ca',
    summary: 'replace the CA of the cluster, in three stages',
    load: async () => (await import('./commands/certs.ts')).certsRotateCa,
  },
  {
    name: 'secrets reencrypt',
    summary: 'encrypt all objects again, after keys changed',
    load: async () => (await import('./commands/secrets.ts')).secretsReencrypt,
  },
  {
    name: 'completion',
    summary: 'print completion for bash, zsh or fish',
    load: async () => (await import('./commands/completion.ts')).completionOf(commands),
  },
  { name: 'version', summary: 'show the version', load: async () => (await import('./commands/version.ts')).version },
];
