/** Every command, with the line that `orchlet --help` shows. */
import type { CommandRow } from './command.ts';

export const commands: readonly CommandRow[] = [
  {
    name: 'up',
    summary: 'run a control plane and an agent: a cluster of one node',
    load: async () => (await import('./commands/up.ts')).up,
  },
  {
    name: 'controlplane',
    summary: 'run the control plane alone',
    load: async () => (await import('./commands/controlplane.ts')).controlplane,
  },
  { name: 'agent', summary: 'run the node agent alone', load: async () => (await import('./commands/agent.ts')).agent },
  {
    name: 'token create',
    summary: 'make a bootstrap token, for nodes that join',
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
    name: 'completion',
    summary: 'print completion for bash, zsh or fish',
    load: async () => (await import('./commands/completion.ts')).completion,
  },
  { name: 'version', summary: 'show the version', load: async () => (await import('./commands/version.ts')).version },
];
