/** `orchlet completion bash|zsh|fish`: made from the command table and the flag tables. */
import type { Command } from '../command.ts';
import { CommandError } from '../command.ts';
import { commands } from '../commands.ts';

interface Completed {
  readonly name: string;
  readonly flags: readonly string[];
}

async function table(): Promise<Completed[]> {
  const all = await Promise.all(commands.map((row) => row.load()));
  return all.map((command) => ({
    name: command.name,
    flags: Object.values(command.flags)
      .filter((row) => row.hidden !== true)
      .map((row) => `--${row.name}`),
  }));
}

function bash(rows: readonly Completed[]): string {
  const first = [...new Set(rows.map((row) => row.name.split(' ')[0]))].join(' ');
  const groups = new Map<string, string[]>();
  for (const row of rows) {
    const [group, word] = row.name.split(' ');
    if (group !== undefined && word !== undefined) groups.set(group, [...(groups.get(group) ?? []), word]);
  }
  const seconds = [...groups].map(([group, words]) => `      ${group}) words="${words.join(' ')}" ;;`);
  const flags = rows.map((row) => `    "${row.name}") words="${row.flags.join(' ')}" ;;`);
  return `# bash completion for orchlet: source <(orchlet completion bash)
_orchlet() {
  local current="\${COMP_WORDS[COMP_CWORD]}" words=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="${first}"
  elif [ "$COMP_CWORD" -eq 2 ] && [[ "$current" != -* ]]; then
    case "\${COMP_WORDS[1]}" in
${seconds.join('\n')}
    esac
  fi
  if [[ "$current" == -* ]]; then
    case "\${COMP_WORDS[1]} \${COMP_WORDS[2]}" in
${rows
  .filter((row) => row.name.includes(' '))
  .map((row) => `    "${row.name}") words="${row.flags.join(' ')}" ;;`)
  .join('\n')}
    *) case "\${COMP_WORDS[1]}" in
${flags.join('\n')}
    esac ;;
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _orchlet orchlet
`;
}

function fish(rows: readonly Completed[]): string {
  const lines = ['# fish completion for orchlet: orchlet completion fish | source'];
  for (const row of rows) {
    const [first = '', second] = row.name.split(' ');
    if (second === undefined) lines.push(`complete -c orchlet -n __fish_use_subcommand -f -a ${first}`);
    else {
      lines.push(`complete -c orchlet -n __fish_use_subcommand -f -a ${first}`);
      lines.push(`complete -c orchlet -n '__fish_seen_subcommand_from ${first}' -f -a ${second}`);
    }
    for (const flag of row.flags)
      lines.push(`complete -c orchlet -n '__fish_seen_subcommand_from ${second ?? first}' -l ${flag.slice(2)}`);
  }
  return `${[...new Set(lines)].join('\n')}\n`;
}

export const completion: Command = {
  name: 'completion',
  summary: 'print completion for bash, zsh or fish',
  arguments: 'bash|zsh|fish',
  description: 'Prints a script that completes commands and flags in a shell.',
  flags: {},
  examples: ['source <(orchlet completion bash)', 'orchlet completion fish | source'],
  async run(parsed) {
    const rows = await table();
    const shell = parsed.arguments[0];
    if (shell === 'bash') process.stdout.write(bash(rows));
    else if (shell === 'zsh') process.stdout.write(`autoload -U +X bashcompinit && bashcompinit\n${bash(rows)}`);
    else if (shell === 'fish') process.stdout.write(fish(rows));
    else throw new CommandError(`completion is made for bash, zsh or fish, not ${JSON.stringify(shell ?? '')}`);
    return 0;
  },
};
