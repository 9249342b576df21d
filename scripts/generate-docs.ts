/**
 * Writes `docs/agent-flags.md` and `docs/controlplane-flags.md` from the option tables. `--check` writes nothing and fails where
 * a page differs from what would be written.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';
import { type AnyFlag, type FlagTable, formatDefault } from '../api/component/flags.ts';
import { activeGates, featureGates } from '../agent/options/feature-gates.ts';
import type { AnyOption } from '../agent/options/option.ts';
import { agentOptions } from '../agent/options/agent-options.ts';
import { controlPlaneFlags } from '../controlplane/options/controlplane-options.ts';

const docs = new URL('../docs', import.meta.url);

function cell(text: string): string {
  return text.replaceAll('|', '\\|').replaceAll('<', '&lt;').replaceAll('\n', ' ');
}

function code(text: string): string {
  return text === '' ? '' : `\`${text.replaceAll('|', '\\|')}\``;
}

function groupsOf<Row extends AnyFlag>(rows: readonly Row[]): ReadonlyMap<string, readonly Row[]> {
  const groups = new Map<string, Row[]>();
  for (const row of rows) groups.set(row.group, [...(groups.get(row.group) ?? []), row]);
  return groups;
}

const VALUE_NAMES: Readonly<Record<AnyFlag['type'], string>> = {
  string: 'text',
  boolean: 'true or false',
  integer: 'whole number',
  number: 'number',
  duration: 'duration',
  list: 'list',
  array: 'text, repeated',
  map: 'map',
};

function meaning(row: AnyFlag): string {
  const choices = (row.choices ?? []).filter((choice) => choice !== '');
  return [
    row.help,
    choices.length === 0 ? '' : `One of ${choices.map(code).join(', ')}.`,
    row.deprecated === undefined ? '' : `Deprecated: ${row.deprecated}${row.deprecated.endsWith('.') ? '' : '.'}`,
  ]
    .filter((part) => part !== '')
    .map((part) => (part.startsWith('One of') ? part : cell(part)))
    .join(' ');
}

function agentRow(row: AnyOption): string {
  const flag = row.name === '' ? '' : code(`--${row.name}`);
  const field = code(row.config?.path ?? '');
  const inFile = row.config?.fileDefault;
  const byDefault = `${code(formatDefault(row))}${inFile === undefined ? '' : `; ${code(String(inFile))} under \`--config\``}`;
  const effect = row.noEffect === undefined ? 'acts' : `none: ${cell(row.noEffect)}`;
  return `| ${flag} | ${field} | ${VALUE_NAMES[row.type]} | ${byDefault} | ${meaning(row)} | ${effect} |`;
}

const AGENT_INTRODUCTION = `# Options of \`orchlet agent\`

Made by \`scripts/generate-docs\` from the option table in \`agent/options/\`; do not edit.

Each row is a flag, a field of the configuration file, or both. What an option is set to is found in this order:

1. the flag on the command line;
2. the drop-ins of \`--config-dir\`: files that end in \`.conf\`, in order of their paths, the last one wins;
3. the file of \`--config\`;
4. the default. With \`--config\` some defaults are stricter; the table says which.

File and drop-ins hold a \`KubeletConfiguration\` of \`kubelet.config.k8s.io/v1beta1\`, in YAML or JSON. A drop-in is a merge patch:
maps are merged by key, lists and single values are replaced, \`null\` goes back to the default. A file with an unknown field, a wrong
type, a key that stands twice or another version is refused with line and column, and the agent does not start. Paths in a file are
relative to its directory. Feature gates of the flag and of the file are merged.

Values are written as in Go: durations \`1h30m\`, quantities \`100Mi\`, maps \`a=1,b=2\`, lists \`a,b\` or repeated flags, \`--flag=value\`
or \`--flag value\`, booleans without a value for true, \`_\` for \`-\` in names.

\`/configz\` of the agent's server shows the effective configuration (\`kubeletconfig\`), the flags that have no field (\`flags\`), and
where each value came from (\`origins\`: \`default\`, \`flag\`, or the file). A flag that has a place in the file is told so once when it
is given. An option whose effect is "none" is accepted with one warning that says why.

Some defaults differ from the reference on purpose: \`--fail-cgroupv1\` is false, because both versions of cgroups are supported;
\`--rotate-certificates\` is true, because a node should not be lost to a certificate that ran out; \`--container-runtime\` is empty, because
the runtime that answers is taken. \`orchlet up\` starts its agent with \`--fail-swap-on=false\`
and with higher rates to the API server, which is in the same process.
`;

function agentPage(): string {
  const rows = Object.values<AnyOption>(agentOptions);
  const without = rows.filter((row) => row.noEffect !== undefined).length;
  const sections = [...groupsOf(rows)].map(
    ([group, members]) =>
      `## ${group}\n\n| flag | field of the file | value | default | meaning | effect |\n| --- | --- | --- | --- | --- | --- |\n${members.map(agentRow).join('\n')}\n`,
  );
  const summary = `${rows.length} options: ${rows.length - without} act, ${without} are accepted without effect.\n`;
  return [AGENT_INTRODUCTION, summary, ...sections, gatesSection()].join('\n');
}

function gatesSection(): string {
  const gates = [...featureGates].map(([name, gate]) => {
    const effect =
      name in activeGates
        ? activeGates[name as keyof typeof activeGates]
        : name === 'AllAlpha' || name === 'AllBeta'
          ? 'sets all gates of that stage that are not named'
          : '';
    const named =
      gate.named === 'both' ? 'specification and 1.36' : gate.named === 'release' ? '1.36' : 'specification';
    return `| \`${name}\` | ${gate.stage} | ${gate.default ? 'on' : 'off'}${gate.locked ? ', locked' : ''} | ${named} | ${effect === '' ? '' : cell(effect)} |`;
  });
  return `## Feature gates

\`--feature-gates\` and \`featureGates\` take the gates of the specification and of Kubernetes 1.36. Where both name a gate, stage and default
are the specification's. An unknown gate is refused, so is changing a locked one; setting a graduated gate is a warning. A gate without an
entry under "effect" is accepted: what it guards is always there, or belongs to another component; a warning says so when it is changed.

| gate | stage | default | named by | effect |
| --- | --- | --- | --- | --- |
${gates.join('\n')}
`;
}

function controlPlanePage(): string {
  const rows: readonly AnyFlag[] = Object.values(controlPlaneFlags satisfies FlagTable as FlagTable).filter(
    (row) => row.hidden !== true,
  );
  const sections = [...groupsOf(rows)].map(([group, members]) => {
    const lines = members.map(
      (row) =>
        `| ${code(`--${row.name}`)} | ${VALUE_NAMES[row.type]} | ${code(formatDefault(row))} | ${meaning(row)}${row.noEffect === undefined ? '' : ` No effect: ${cell(row.noEffect)}.`} |`,
    );
    return `## ${group}\n\n| flag | value | default | meaning |\n| --- | --- | --- | --- |\n${lines.join('\n')}\n`;
  });
  return `# Flags of \`orchlet controlplane\`

Made by \`scripts/generate-docs\` from the table in \`controlplane/options/controlplane-options.ts\`; do not edit.

Names and meanings are those of the API server and the controller manager of Kubernetes. Values are written as in Go: durations \`1h30m\`,
maps \`a=1,b=2\`, lists \`a,b\` or repeated flags, booleans without a value for true.

${sections.join('\n')}`;
}

export const pages: Readonly<Record<string, () => string>> = {
  'agent-flags.md': agentPage,
  'controlplane-flags.md': controlPlanePage,
};

function main(args: readonly string[]): number {
  for (const [name, page] of Object.entries(pages)) {
    const file = new URL(name, docs);
    if (!args.includes('--check')) writeFileSync(file, page());
    else if (readFileSync(file, 'utf8') !== page()) {
      process.stderr.write(`docs/${name} is not what the tables say: run scripts/generate-docs\n`);
      return 1;
    }
  }
  return 0;
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) process.exitCode = main(process.argv.slice(2));
