/**
 * Runs one command line. Exit codes: 0 success, 1 a failure, 2 bad usage, 70 an error that nothing handled, 74 a failed
 * storage; 130, 131 and 143 after a second signal (SIGINT, SIGQUIT, SIGTERM), or 130 and 143 after one before anything ran. A
 * failure is printed as its message, and a fault of the program as its stack.
 */
import { resolve } from 'node:path';
import { printable, quoteText } from '../api/meta/quote.ts';
import { formatFlags, nearest, parseFlags, UsageError, wrap } from '../api/component/flags.ts';
import { isPlain } from '../api/component/plain-error.ts';
import { StatusError } from '../api/meta/status-error.ts';
import { type Command, CommandError, type CommandRow } from './command-line/command.ts';
import { commands } from './commands.ts';
import { reachingProgram } from './host/hidden-directory.ts';
import type { CommandIo } from './command-line/io.ts';
import { HiddenDirectoryError } from './host/owner-rights.ts';

const HELP_WIDTH = 80;

/** Runs a command line. Resolves to the exit code; errors are printed. */
export async function run(argv: readonly string[], io: CommandIo): Promise<number> {
  try {
    return await dispatch(argv, io);
  } catch (error) {
    io.stderr.write(`orchlet: ${printable(describe(error))}\n`);
    return error instanceof UsageError ? 2 : 1;
  }
}

function describe(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return isPlain(error) || error instanceof StatusError ? error.message : (error.stack ?? error.message);
}

async function dispatch(argv: readonly string[], io: CommandIo): Promise<number> {
  const [first, second] = argv;
  if (first === 'help' && second !== undefined) return await dispatch([...argv.slice(1), '--help'], io);
  if (first === undefined || first === 'help' || first === '--help' || first === '-h') {
    io.stdout.write(overview());
    return first === undefined ? 2 : 0;
  }
  const group = commands.filter((row) => row.name.startsWith(`${first} `));
  const found = findCommand(first === '--version' ? ['version'] : argv);
  if (found === undefined && group.length > 0 && (second === '--help' || second === '-h')) {
    io.stdout.write(groupOverview(first, group));
    return 0;
  }
  if (found === undefined) throw unknownCommand(argv);
  const command = await found.row.load();
  if (found.remainingWords.includes('--help') || found.remainingWords.includes('-h')) {
    io.stdout.write(helpOf(found.row.name, command));
    return 0;
  }
  const parsed = parseFlags(command.flags, found.remainingWords);
  checkArguments(found.row.name, command, parsed.arguments);
  for (const warning of parsed.warnings) io.stderr.write(`warning: ${warning}\n`);
  try {
    return await command.run(parsed, io);
  } catch (error) {
    if (error instanceof HiddenDirectoryError) {
      // The user who controls the data cannot enter a directory above it. The command line runs again where that user can.
      const commandLine = reachingProgram(error.directory, [...io.ownProgram, ...argv]);
      if (commandLine !== undefined) return await io.runProgram(commandLine);
    }
    throw namingFlag(error, command, parsed.values);
  }
}

/** Returns the error with the name of the flag in front, if the operating system reports it about a file that a flag names. */
function namingFlag(error: unknown, { flags }: Command, values: Readonly<Record<string, unknown>>): unknown {
  const path = failedPath(error);
  if (path === undefined || !(error instanceof Error)) return error;
  const isFailedPath = (value: unknown): boolean =>
    typeof value === 'string' && value !== '' && resolve(value) === path;
  for (const [key, { name }] of Object.entries(flags)) {
    const value = values[key];
    if ((Array.isArray(value) ? value.some(isFailedPath) : isFailedPath(value)) && !error.message.includes(`--${name}`))
      return new CommandError(`--${name}: ${error.message}`, { cause: error });
  }
  return error;
}

/** Returns the path of the system call that failed, also if another error wraps it. */
function failedPath(error: unknown): string | undefined {
  if (!(error instanceof Error)) return undefined;
  if ('syscall' in error && 'path' in error && typeof error.path === 'string') return resolve(error.path);
  return failedPath(error.cause);
}

/** Returns the longest command that the words begin with. */
function findCommand(
  words: readonly string[],
): { readonly row: CommandRow; readonly remainingWords: readonly string[] } | undefined {
  for (let length = 2; length >= 1; length--) {
    const name = words.slice(0, length).join(' ');
    const row = commands.find((candidate) => candidate.name === name);
    if (row !== undefined) return { row, remainingWords: words.slice(length) };
  }
  return undefined;
}

function unknownCommand(words: readonly string[]): UsageError {
  const [first = ''] = words;
  if (first.startsWith('-'))
    return new UsageError(`${first} stands before a command: flags follow it, as in 'orchlet COMMAND ${first}'`);
  const typed = words.slice(0, 2).filter((word) => !word.startsWith('-'));
  const names = commands.map((row) => row.name);
  const group = names.filter((name) => name.startsWith(`${first} `));
  const near = nearest(typed.join(' '), names) ?? nearest(first, names);
  const hint =
    group.length > 0
      ? ` (one of: ${group.map((name) => name.split(' ')[1]).join(', ')})`
      : near === undefined
        ? " ('orchlet --help' lists them)"
        : ` (did you mean '${near}'?)`;
  if (group.length > 0 && typed.length === 1)
    return new UsageError(`'orchlet ${first}' needs a command after it${hint}`);
  return new UsageError(`unknown command: ${typed.join(' ')}${hint}`);
}

function checkArguments(name: string, { arguments: wanted }: Command, given: readonly string[]): void {
  const { usage = '', least = 0, most = 0, choices } = wanted ?? {};
  const shown = `orchlet ${name} [FLAGS] ${usage}`.trim();
  if (given.length < least) throw new UsageError(`'orchlet ${name}' needs ${usage}: ${shown}`);
  const extra = given[most];
  if (extra !== undefined)
    throw new UsageError(
      most === 0
        ? `'orchlet ${name}' takes no arguments, but was given ${quoteText(extra)}`
        : `${quoteText(extra)} is one argument too many: ${shown}`,
    );
  const wrong = choices === undefined ? undefined : given.find((word) => !choices.includes(word));
  if (wrong !== undefined) throw new UsageError(`${quoteText(wrong)} is not one of ${choices?.join(', ') ?? ''}`);
}

function listOf(rows: readonly CommandRow[]): string[] {
  const width = Math.max(...rows.map((row) => row.name.length));
  return rows.map((row) => `  ${row.name.padEnd(width)}  ${row.summary}`);
}

function overview(): string {
  return [
    'orchlet turns Linux hosts into a cluster that speaks the Kubernetes API.',
    '',
    'Usage:',
    '  orchlet COMMAND [FLAGS]',
    '',
    'Commands:',
    ...listOf(commands),
    '',
    "'orchlet COMMAND --help' shows the flags of a command.",
    '',
  ].join('\n');
}

function groupOverview(group: string, rows: readonly CommandRow[]): string {
  return [
    'Usage:',
    `  orchlet ${group} COMMAND [FLAGS]`,
    '',
    'Commands:',
    ...listOf(rows),
    '',
    `'orchlet ${group} COMMAND --help' shows the flags of a command.`,
    '',
  ].join('\n');
}

function helpOf(name: string, command: Command): string {
  const usage = `orchlet ${name} [FLAGS]${command.arguments === undefined ? '' : ` ${command.arguments.usage}`}`;
  const examples = command.examples.length === 0 ? '' : `\nExamples:\n${command.examples.map(exampleOf).join('\n')}\n`;
  return `${wrap(command.description, HELP_WIDTH, '')}\n\nUsage:\n  ${usage}\n${examples}${formatFlags(command.flags, HELP_WIDTH)}`;
}

/** Returns an example that can be copied: long lines continue with a backslash. */
function exampleOf(line: string): string {
  return wrap(line, HELP_WIDTH - 4, '    ')
    .slice(2)
    .replaceAll('\n', ' \\\n');
}
