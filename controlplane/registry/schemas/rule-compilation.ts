/** Compiles the CEL rules (`x-kubernetes-validations`) of a schema. */
import { CelCompileError, type CelEnvironment, compile, type Program } from '../../../api/cel/cel.ts';
import { UNBOUNDED } from '../../../api/cel/cost-range.ts';
import { optional } from '../../../api/cel/types.ts';
import { invalid, type FieldError } from '../../../api/meta/field-error.ts';
import { readFieldPath } from './field-path.ts';
import { itemsOf, type JsonSchema, OBJECT_MEMBERS } from './json-schema.ts';
import { type Count, countInside, RuleCosts } from './rule-costs.ts';
import { maxCount, type RuleType, ruleTypeOf, sizesOf } from './rule-types.ts';
import { extensionErrors, keywordErrors, type Place, type RuleText } from './schema-checks.ts';

/** A compiled rule of `x-kubernetes-validations`. */
export interface Rule {
  readonly source: string;
  readonly message: string;
  readonly reason: string;
  /** The path of the invalid field, relative to the value; `''` for the value itself. */
  readonly fieldPath: string;
  readonly optionalOldSelf: boolean;
  /** Whether the rule uses `oldSelf`. */
  readonly isTransition: boolean;
  readonly program: Program;
  readonly messageProgram: Program | undefined;
}

/** A rule of a stored definition that does not compile. It refuses every value. */
interface BrokenRule {
  readonly broken: string;
}

/** The rules of a value and of its parts. */
export interface RuleNode {
  readonly schema: JsonSchema;
  readonly rules: readonly (Rule | BrokenRule)[];
  readonly properties: ReadonlyMap<string, RuleNode>;
  readonly items: RuleNode | undefined;
  /** The rules of `additionalProperties`. */
  readonly members: RuleNode | undefined;
}

/** The rules of a schema as a tree of its shape. */
export interface CompiledRules {
  readonly isEmpty: boolean;
  readonly root: RuleNode | undefined;
}

/** How the rules are compiled. */
interface RuleOptions {
  /** Whether the rules apply to a whole object, with kind, version and name. True by default. */
  readonly isResource?: boolean;
  /** Present if the schema and the cost of its rules are validated. */
  readonly judge?: {
    /** Whether the stored definition has the same schema. Its rules then have no cost limit but that of the schema. */
    readonly isKnown: boolean;
    /** Whether the rules are not compiled, because the schema is not structural or one of its defaults is invalid. */
    readonly skipRules: boolean;
  };
}

interface JudgedRules {
  readonly errors: readonly FieldError[];
  readonly rules: CompiledRules;
}

/**
 * Compiles the rules of a schema, and returns the errors of those that do not compile. With `judge`, the errors of the schema
 * and of rules that are too expensive are among them. `path` is the path of the schema.
 */
export function compileRules(schema: JsonSchema, path: string, options: RuleOptions = {}): JudgedRules {
  const { isResource = true, judge } = options;
  const walk: Walk = { judge, costs: new RuleCosts(), errors: [], faults: [] };
  const root = nodeOf(schema, { path, isRoot: true, isResource, count: 1 }, walk);
  const errors = [...walk.errors, ...walk.faults, ...(judge === undefined ? [] : walk.costs.errors(path))];
  return { errors, rules: { isEmpty: root === undefined, root } };
}

interface Walk {
  readonly judge: RuleOptions['judge'];
  readonly costs: RuleCosts;
  readonly errors: FieldError[];
  /** Errors of compilation and cost. They come after the other errors. */
  readonly faults: FieldError[];
}

interface At extends Place {
  readonly isRoot?: boolean;
  readonly isResource: boolean;
  readonly count: Count;
  /** The list whose items cannot be matched with those of the old object. */
  readonly uncorrelated?: string | undefined;
  /** Whether the schema is inside of `allOf` or a similar keyword, where rules are not compiled. */
  readonly nested?: boolean;
}

/** Compiles the rules of a schema and of its parts, and adds their errors to `walk`. */
function nodeOf(schema: JsonSchema, at: At, walk: Walk): RuleNode | undefined {
  const before = walk.errors.length;
  if (walk.judge !== undefined) walk.errors.push(...keywordErrors(schema, at));
  const { path } = at;
  const count = countInside(at.count, schema);
  const enter = (inner: JsonSchema, step: string, more: Partial<At> = {}): RuleNode | undefined => {
    const isResource = inner['x-kubernetes-embedded-resource'] === true;
    return nodeOf(inner, { ...at, isRoot: false, path: `${path}.${step}`, isResource, count, ...more }, walk);
  };
  const { additionalProperties } = schema;
  const inMetadata = at.insideMetadata === true;
  const members =
    typeof additionalProperties === 'object'
      ? enter(
          additionalProperties,
          'additionalProperties',
          inMetadata ? { noDefault: 'inside additionalProperties applying to object metadata' } : {},
        )
      : undefined;
  const properties = new Map<string, RuleNode>();
  for (const [name, inner] of Object.entries(schema.properties ?? {})) {
    const ofObject = (at.isRoot === true || at.isResource) && OBJECT_MEMBERS.has(name);
    const noDefault = ofObject && at.isRoot === true ? { noDefault: `in top-level ${name}` } : {};
    const more = ofObject ? { insideMetadata: true, ...noDefault } : {};
    const node = enter(inner, `properties[${name}]`, more);
    if (node !== undefined) properties.set(name, node);
  }
  if (walk.judge !== undefined) {
    if (schema.not !== undefined) enter(schema.not, 'not', { nested: true });
    for (const junction of ['allOf', 'oneOf', 'anyOf'] as const) {
      schema[junction]?.forEach((one, index) => enter(one, `${junction}[${index}]`, { nested: true }));
    }
  }
  const inner = itemsOf(schema);
  const isKeyed = schema['x-kubernetes-list-type'] === 'map';
  const items =
    inner === undefined ? undefined : enter(inner, 'items', isKeyed ? {} : { uncorrelated: at.uncorrelated ?? path });
  if (walk.judge !== undefined) walk.errors.push(...extensionErrors(schema, path));
  // Errors of the schema could cause errors in its rules.
  const skips = at.nested === true || walk.judge?.skipRules === true || walk.errors.length > before;
  const rules = skips ? [] : rulesOf(schema, at, walk);
  if (rules.length === 0 && properties.size === 0 && items === undefined && members === undefined) return undefined;
  return { schema, rules, properties, items, members };
}

function rulesOf(schema: JsonSchema, at: At, walk: Walk): (Rule | BrokenRule)[] {
  const texts = (schema['x-kubernetes-validations'] ?? []) as readonly RuleText[];
  const type = texts.length === 0 ? undefined : ruleTypeOf(schema, { isResource: at.isResource });
  if (type === undefined) return [];
  return texts.flatMap((text, index) => {
    const rule = ruleOf(text, { type, schema }, { ...at, path: `${at.path}.x-kubernetes-validations[${index}]` }, walk);
    return rule === undefined ? [] : [rule];
  });
}

/** Formats a rule as kube-apiserver does in messages. */
function goForm(text: RuleText): object {
  return {
    Rule: text.rule ?? '',
    Message: text.message ?? '',
    MessageExpression: text.messageExpression ?? '',
    Reason: text.reason ?? null,
    FieldPath: text.fieldPath ?? '',
    OptionalOldSelf: text.optionalOldSelf ?? null,
  };
}

/** Compiles one rule, and adds its errors to `walk`. Returns `undefined` for an empty rule. */
function ruleOf(
  text: RuleText,
  { type, schema }: { readonly type: RuleType; readonly schema: JsonSchema },
  at: At,
  walk: Walk,
): Rule | BrokenRule | undefined {
  const { path } = at;
  const { rule: source = '', message = '', messageExpression = '', reason = '', fieldPath = '' } = text;
  if (source.trim() === '') return undefined;
  const optionalOldSelf = text.optionalOldSelf ?? false;
  const environment: CelEnvironment = {
    variables: { self: type.type, oldSelf: optionalOldSelf ? optional(type.type) : type.type },
    ...(walk.judge === undefined ? {} : { sizeAt: sizesOf(type) }),
  };
  const refuse = (field: string, why: string): unknown =>
    walk.faults.push(invalid(`${path}.${field}`, goForm(text), why));
  const program = compiled(source, environment);
  if ('broken' in program) {
    refuse('rule', program.broken);
    refuseUnusedOption(text, path, walk);
    return program;
  }
  const isKnown = walk.judge?.isKnown === true;
  const times = at.count ?? maxCount(type);
  const ruleCost = Math.min(UNBOUNDED, (program.maxCost ?? 0) * times);
  walk.faults.push(...walk.costs.observe(`${path}.rule`, 'estimated rule cost', ruleCost, isKnown));
  const messageProgram =
    messageExpression === ''
      ? undefined
      : compiledMessage(messageExpression, environment, (why) => refuse('messageExpression', why));
  if (messageProgram !== undefined) {
    const field = `${path}.messageExpression`;
    const cost = messageProgram.maxCost ?? 0;
    walk.faults.push(...walk.costs.observe(field, 'estimated messageExpression cost', cost, isKnown));
  }
  const isTransition = program.references.has('oldSelf');
  if (walk.judge !== undefined) {
    if (isTransition && at.uncorrelated !== undefined) {
      const why = `oldSelf cannot be used on the uncorrelatable portion of the schema within ${at.uncorrelated}`;
      walk.faults.push(invalid(`${path}.rule`, source, why));
    } else if (!isTransition) refuseUnusedOption(text, path, walk);
  }
  const named = fieldPath === '' ? undefined : readFieldPath(fieldPath, schema, { brackets: true });
  const field = named === undefined || 'error' in named ? '' : named.shown;
  return { source, message, reason, fieldPath: field, optionalOldSelf, isTransition, program, messageProgram };
}

/**
 * Refuses `optionalOldSelf` on a rule without `oldSelf`. A rule that does not compile counts as one, because it uses no
 * variable.
 */
function refuseUnusedOption({ optionalOldSelf }: RuleText, path: string, { faults }: Walk): void {
  if (optionalOldSelf === undefined) return;
  faults.push(invalid(`${path}.optionalOldSelf`, optionalOldSelf, 'may not be set if oldSelf is not used in rule'));
}

function compiled(source: string, environment: CelEnvironment): Program | BrokenRule {
  try {
    const program = compile(source, environment);
    return program.type.kind === 'bool' ? program : { broken: 'cel expression must evaluate to a bool' };
  } catch (error) {
    if (!(error instanceof CelCompileError)) throw error;
    return { broken: error.reason };
  }
}

function compiledMessage(
  source: string,
  environment: CelEnvironment,
  refuse: (why: string) => void,
): Program | undefined {
  try {
    const program = compile(source, environment);
    if (program.type.kind === 'string') return program;
    refuse('messageExpression must evaluate to a string');
  } catch (error) {
    if (!(error instanceof CelCompileError)) throw error;
    const stage = error.stage === 'compilation' ? 'compilation' : 'instantiation';
    refuse(`messageExpression ${stage} failed: ${error.message}`);
  }
  return undefined;
}
