/**
 * Attacks every regular expression of the program with inputs of one repeated part, for which a backtracking engine may need
 * more than linear time. The parts come from the expression itself: one character of each class that it distinguishes, and its
 * literal words.
 */
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { measureGrowth, MAX_EXPONENT, type Growth } from './growth.ts';

const ROOT = join(import.meta.dirname, '../..');
/** A literal in a position where a division is not possible. */
const LITERAL =
  /(?<=(?:^|[(,=:[!&|?{};>]|\breturn)\s*)\/(?![*/])((?:[^\\/[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+)\/([dgimsuvy]*)(?=[\s.,;)\]}:]|$)/gm;
const COMMENT = /^\s*(?:\*|\/\/|\/\*)/;
const ATOM = /\[(?:[^\]\\]|\\.)*\]|\\u\{?[0-9a-fA-F]+\}?|\\x[0-9a-fA-F]{2}|\\[pP]\{[^}]*\}|\\.|[^()|*+?^$]/gu;
const WORD = /(?:[A-Za-z0-9 =<>:"'#-]|\\[.[\]/])+/g;
const MAX_KINDS = 14;
const MAX_PAIRED = 6;
/** The time below which an expression is not measured any further. A quadratic one takes longer for the first inputs. */
const SUSPICIOUS_MS = 0.7;
const FIRST_BYTES = [16, 20, 24, 28, 32, 256, 2048];
const MAX_BYTES = 16_384;

export interface Expression {
  readonly file: string;
  readonly literal: string;
  readonly expression: RegExp;
}

/** Finds the literals of regular expressions in the sources of the program. */
export function readExpressions(): Expression[] {
  const files = globSync('{api,agent,controlplane,cli}/**/*.ts', { cwd: ROOT }).sort();
  return files.flatMap((file) => {
    const lines = readFileSync(join(ROOT, file), 'utf8').split('\n');
    return lines
      .filter((line) => !COMMENT.test(line))
      .flatMap((line) =>
        [...line.matchAll(LITERAL)].flatMap(([literal, source = '', flags = '']) => {
          const expression = expressionOf(source, flags);
          return expression === undefined ? [] : [{ file, literal, expression }];
        }),
      );
  });
}

function expressionOf(source: string, flags: string): RegExp | undefined {
  try {
    return new RegExp(source, flags);
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

interface Attack {
  readonly prefix: string;
  readonly pump: string;
  readonly suffix: string;
}

function attacksOn(expression: RegExp): Attack[] {
  const { source } = expression;
  const words = [...new Set([...source.matchAll(WORD)].map(([word]) => word.replaceAll('\\', '')))]
    .filter((word) => word.length > 1)
    .slice(0, 4);
  const kinds = kindsOf(source);
  const pairs = kinds.slice(0, MAX_PAIRED).flatMap((one) => kinds.slice(0, MAX_PAIRED).map((next) => one + next));
  const pumps = [
    ...kinds,
    ...pairs,
    ...words,
    ...words.flatMap((word) => kinds.slice(0, 3).map((kind) => word + kind)),
  ];
  const first = literalPrefix(source);
  const entered = kinds.slice(0, MAX_PAIRED).map((kind) => first + kind);
  const prefixes = [...new Set(['', 'é', first, ...entered, ...words.slice(0, 2), ...kinds.slice(0, 4)])];
  const suffixes = ['', '\0', '\n', '!', 'é '];
  return pumps.flatMap((pump) => prefixes.flatMap((prefix) => suffixes.map((suffix) => ({ prefix, pump, suffix }))));
}

/** Returns one character of each class that the atoms of the expression distinguish. */
function kindsOf(source: string): string[] {
  const atoms = [...new Set(source.match(ATOM) ?? [])].flatMap((atom) => {
    const expression = expressionOf(`^${atom}$`, 'u') ?? expressionOf(`^${atom}$`, '');
    return expression === undefined ? [] : [expression];
  });
  const kinds = new Map<string, string>();
  for (let code = 127; code >= 0; code -= 1) {
    const char = String.fromCharCode(code);
    const kind = atoms.map((atom) => (atom.test(char) ? '1' : '0')).join('');
    if (kind.includes('1')) kinds.set(kind, char);
  }
  return [...kinds.values()].slice(0, MAX_KINDS);
}

/** Returns the beginning of every match: the required atoms before the first group or class. */
function literalPrefix(source: string): string {
  let prefix = '';
  for (let rest = source.replace(/^\^/, ''); rest !== '';) {
    const [step, atom = '', quantifier] = /^(\\?[^()|[\]])([?*+{])?/.exec(rest) ?? [];
    if (step === undefined || /^\\[a-z0-9]$/i.test(atom) === (quantifier === undefined)) break;
    if (quantifier === undefined) prefix += atom.replace('\\', '');
    rest = rest.slice(step.length);
  }
  return prefix;
}

/** Applies the expression like the program does: a sticky one at the start, and a global one wherever it matches. */
function applied({ expression }: Expression, { prefix, pump, suffix }: Attack): (size: number) => unknown {
  return (size) => {
    const text = prefix + pump.repeat(Math.ceil(size / pump.length)) + suffix;
    expression.lastIndex = 0;
    return expression.global ? text.replace(expression, '') : expression.exec(text);
  };
}

/** Returns the first attack for which the time grows faster than the size, or `undefined`. */
export async function successfulAttack(
  candidate: Expression,
): Promise<{ readonly attack: Attack; readonly growth: Growth } | undefined> {
  for (const attack of attacksOn(candidate.expression)) {
    const run = applied(candidate, attack);
    const isSuspicious = FIRST_BYTES.some((size) => {
      const start = performance.now();
      run(size);
      return performance.now() - start > SUSPICIOUS_MS;
    });
    if (!isSuspicious) continue;
    const growth = await measureGrowth(run, { maxBytes: MAX_BYTES });
    if (growth !== undefined && growth.exponent > MAX_EXPONENT) return { attack, growth };
  }
  return undefined;
}
