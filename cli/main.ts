/**
 * The `orchlet` command. Exit codes: 0 done, 1 a failure in one clear line, 2 bad usage, 70 an internal error; 130 and 143
 * after a signal before anything ran.
 */
import { enableCompileCache } from 'node:module';
import { formatFlags, nearest, parseFlags, UsageError, wrap } from '../api/component/flags.ts';
import { keepAlive } from '../api/machinery/clock.ts';
import { type Command, type CommandRow, CommandError } from './command.ts';
import { commands } from './commands.ts';
import { exitUnexpectedly, installLastResort } from './last-resort.ts';

enableCompileCache();

const HELP_WIDTH = 80;

function overview(rows: readonly CommandRow[] = commands): string {
  const width = Math.max(...rows.map((row) => row.name.length));
  const lines = rows.map((row) => `  ${row.name.padEnd(width)}  ${row.summary}`);
  return [
    'orchlet turns Linux hosts into a cluster that speaks the Kubernetes API.',
    '',
    'Usage:',
    '  orchlet COMMAND [FLAGS]',
    '',
    'Commands:',
    ...lines,
    '',
    "'orchlet COMMAND --help' shows the flags of a command.",
    '',
  ].join('\n');
}

function helpOf(command: Command): string {
  const usage = `orchlet ${command.name} [FLAGS]${command.arguments === undefined ? '' : ` ${command.arguments}`}`;
  const examples = command.examples.length === 0 ? '' : `\nExamples:\n${command.examples.map(exampleOf).join('\n')}\n`;
  return `${wrap(command.description, HELP_WIDTH, '')}\n\nUsage:\n  ${usage}\n${examples}${formatFlags(command.flags, HELP_WIDTH)}`;
}

/** On as many lines as it needs, to be copied as they are. */
function exampleOf(line: string): string {
  return wrap(line, HELP_WIDTH - 4, '    ')
    .slice(2)
    .replaceAll('\n', ' \\\n');
}

/** The longest command that the words begin with. */
function find(words: readonly string[]): { readonly row: CommandRow; readonly rest: readonly string[] } | undefined {
  for (let length = 2; length >= 1; length--) {
    const name = words.slice(0, length).join(' ');
    const row = commands.find((candidate) => candidate.name === name);
    if (row !== undefined) return { row, rest: words.slice(length) };
  }
  return undefined;
}

function unknownCommand(words: readonly string[]): UsageError {
  const typed = words.slice(0, 2).filter((word) => !word.startsWith('-'));
  const names = commands.map((row) => row.name);
  const group = names.filter((name) => name.startsWith(`${typed[0] ?? ''} `));
  const near = nearest(typed.join(' '), names) ?? nearest(typed[0] ?? '', names);
  const hint =
    group.length > 0
      ? ` (one of: ${group.map((name) => name.split(' ')[1]).join(', ')})`
      : near === undefined
        ? ''
        : ` (did you mean '${near}'?)`;
  return new UsageError(`unknown command: ${typed.join(' ')}${hint}`);
}

async function run(argv: readonly string[]): Promise<number> {
  const [first, second] = argv;
  if (first === 'help' && second !== undefined) return run([...argv.slice(1), '--help']);
  const group = commands.filter((row) => row.name.startsWith(`${first} `));
  if (group.length > 0 && (second === '--help' || second === '-h') && find(argv) === undefined) {
    process.stdout.write(overview(group));
    return 0;
  }
  if (first === undefined || first === 'help' || first === '--help' || first === '-h') {
    process.stdout.write(overview());
    return first === undefined ? 2 : 0;
  }
  const found = find(first === '--version' ? ['version'] : argv);
  if (found === undefined) throw unknownCommand(argv);
  const command = await found.row.load();
  if (found.rest.includes('--help') || found.rest.includes('-h')) {
    process.stdout.write(helpOf(command));
    return 0;
  }
  const parsed = parseFlags(command.flags, found.rest);
  const [extra] = parsed.arguments;
  if (extra !== undefined && command.arguments === undefined)
    throw new UsageError(`'orchlet ${command.name}' takes no arguments, but was given ${JSON.stringify(extra)}`);
  for (const warning of parsed.warnings) process.stderr.write(`warning: ${warning}\n`);
  return command.run(parsed);
}

/** Errors that were put into words where they arose; those of the system name their file. */
function isWorded(error: unknown): boolean {
  return (
    error instanceof CommandError ||
    (error instanceof Error && 'syscall' in error && 'path' in error) ||
    (error instanceof Error && ['StartError', 'KubeconfigError', 'StatusError', 'ManifestError'].includes(error.name))
  );
}

async function main(): Promise<void> {
  const alive = keepAlive();
  try {
    process.exitCode = await run(process.argv.slice(2));
  } catch (error) {
    process.exitCode = error instanceof UsageError ? 2 : 1;
    const told = error instanceof UsageError || isWorded(error);
    const text = error instanceof Error ? (told ? error.message : (error.stack ?? error.message)) : String(error);
    process.stderr.write(`orchlet: ${text}\n`);
  } finally {
    alive.cancel();
  }
}

installLastResort();
main().catch(exitUnexpectedly);
