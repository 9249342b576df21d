/** `orchlet completion bash|zsh|fish` prints scripts that are generated from the command table and the flag tables. */
import { type AnyFlag, shownChoices } from '../../api/component/flags.ts';
import type { Command, CommandRow } from '../command-line/command.ts';

const SHELLS = ['bash', 'zsh', 'fish'] as const;

interface Completed {
  readonly name: string;
  readonly summary: string;
  readonly flags: readonly AnyFlag[];
  /** The words that are allowed as arguments. */
  readonly words: readonly string[];
}

async function completedCommands(commands: readonly CommandRow[]): Promise<Completed[]> {
  return await Promise.all(
    commands.map(async ({ name, summary, load }) => {
      const command = await load();
      const flags = Object.values(command.flags).filter((row) => row.hidden !== true);
      return { name, summary, flags, words: command.arguments?.choices ?? [] };
    }),
  );
}

const isDefined = (word: string | undefined): word is string => word !== undefined;
const firstWords = (rows: readonly Completed[]): string[] => [
  ...new Set(rows.map((row) => row.name.split(' ')[0]).filter(isDefined)),
];
const secondWords = (rows: readonly Completed[], first: string): string[] =>
  rows.filter((row) => row.name.startsWith(`${first} `)).map((row) => row.name.slice(first.length + 1));
const valuesOf = (row: AnyFlag): readonly string[] => (row.type === 'boolean' ? ['true', 'false'] : shownChoices(row));

/** Returns a `case` branch in bash for each key; branches without words are left out. */
function branches(indent: string, pairs: readonly (readonly [string, readonly string[]])[]): string {
  return pairs
    .filter(([, words]) => words.length > 0)
    .map(([key, words]) => `${indent}"${key}") words="${words.join(' ')}" ;;`)
    .join('\n');
}

function bash(rows: readonly Completed[]): string {
  const firsts = firstWords(rows);
  const flagNames = (row: Completed): string[] => row.flags.map((one) => `--${one.name}`);
  const valuesIn = (isList: boolean) =>
    rows.flatMap((row) =>
      row.flags
        .filter(({ type }) => (type === 'list') === isList)
        .map((one) => [`${row.name} --${one.name}`, valuesOf(one)] as const),
    );
  return `# bash completion for orchlet: source <(orchlet completion bash)
_orchlet() {
  local current="\${COMP_WORDS[COMP_CWORD]}" previous="\${COMP_WORDS[COMP_CWORD-1]}" words="" command flag=""
  command="\${COMP_WORDS[1]}"
  case "$command \${COMP_WORDS[2]}" in
${rows
  .filter((row) => row.name.includes(' '))
  .map((row) => `    "${row.name}") command="${row.name}" ;;`)
  .join('\n')}
  esac
  # bash splits --flag=value at the equals sign.
  if [ "$current" = "=" ]; then flag="$previous"; current=""
  elif [ "$previous" = "=" ]; then flag="\${COMP_WORDS[COMP_CWORD-2]}"
  elif [[ "$previous" == --* ]]; then flag="$previous"
  fi
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="${[...firsts, 'help'].join(' ')}"
  elif [ -n "$flag" ] && [[ "$current" != -* ]]; then
    case "$command $flag" in
${branches('      ', valuesIn(false))}
    esac
    case "$command $flag" in
${branches('      ', valuesIn(true))}
      *) false ;;
    esac && if [[ "$current" == *,* ]]; then
      # The last item is completed, after the items before it.
      words="\${words// / \${current%,*},}"; words="\${current%,*},$words"
    fi
  elif [[ "$current" == -* ]]; then
    case "$command" in
${branches(
  '      ',
  rows.map((row) => [row.name, [...flagNames(row), '--help']] as const),
)}
    esac
  elif [ "$COMP_CWORD" -eq 2 ] || [ "\${COMP_WORDS[1]}" = help ]; then
    local group="\${COMP_WORDS[COMP_CWORD-1]}"
    case "$group" in
${branches('      ', [...firsts.map((first) => [first, secondWords(rows, first)] as const), ['help', firsts]])}
    esac
  fi
  if [ -z "$words" ] && [[ "$current" != -* ]] && [ -z "$flag" ]; then
    case "$command" in
${branches(
  '      ',
  rows.map((row) => [row.name, row.words] as const),
)}
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _orchlet orchlet
`;
}

const quote = (text: string): string => `'${text.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'`;
const firstSentence = (text: string): string => /^.*?[.;](?=\s|$)/s.exec(text)?.[0].slice(0, -1) ?? text;

function fish(rows: readonly Completed[]): string {
  const lines = ['# fish completion for orchlet: orchlet completion fish | source'];
  for (const first of firstWords(rows)) {
    const ownRow = rows.find((row) => row.name === first);
    const summary = ownRow?.summary ?? `commands: ${secondWords(rows, first).join(', ')}`;
    lines.push(`complete -c orchlet -n __fish_use_subcommand -f -a ${first} -d ${quote(summary)}`);
  }
  lines.push("complete -c orchlet -n __fish_use_subcommand -f -a help -d 'show the help of a command'");
  lines.push(`complete -c orchlet -n '__fish_seen_subcommand_from help' -f -a '${firstWords(rows).join(' ')}'`);
  for (const row of rows) {
    const [first = '', second] = row.name.split(' ');
    const isFirst = `__fish_seen_subcommand_from ${first}`;
    const seconds = secondWords(rows, first);
    if (second !== undefined)
      lines.push(
        `complete -c orchlet -n '${isFirst}; and not __fish_seen_subcommand_from ${seconds.join(' ')}' -f -a ${second} -d ${quote(row.summary)}`,
      );
    const within = second === undefined ? isFirst : `${isFirst}; and __fish_seen_subcommand_from ${second}`;
    for (const one of row.flags) {
      const values = valuesOf(one);
      const words = one.type === 'list' ? `(__fish_append , ${values.join(' ')})` : values.join(' ');
      const value = one.type === 'boolean' ? '' : values.length > 0 ? ` -x -a '${words}'` : ' -r';
      lines.push(`complete -c orchlet -n '${within}' -l ${one.name}${value} -d ${quote(firstSentence(one.help))}`);
    }
    if (row.words.length > 0) lines.push(`complete -c orchlet -n '${within}' -f -a '${row.words.join(' ')}'`);
  }
  return `${lines.join('\n')}\n`;
}

/** Returns the command that completes the commands of a table, its own among them. */
export function completionOf(commands: readonly CommandRow[]): Command {
  return {
    arguments: { usage: SHELLS.join('|'), least: 1, most: 1, choices: SHELLS },
    description: 'Prints a script that completes commands, flags and their values in a shell.',
    flags: {},
    examples: ['source <(orchlet completion bash)', 'orchlet completion fish | source'],
    async run(parsed, io) {
      const rows = await completedCommands(commands);
      const [shell] = parsed.arguments;
      if (shell === 'fish') io.stdout.write(fish(rows));
      else if (shell === 'zsh') io.stdout.write(`autoload -U +X bashcompinit && bashcompinit\n${bash(rows)}`);
      else io.stdout.write(bash(rows));
      return 0;
    },
  };
}
