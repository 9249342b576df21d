/**
 * Bundles the program into one folder of JavaScript with everything that it loads at run time: `table.json`, `resources.json`,
 * the texts of the API's types (`models/`), the storage addon (`better-sqlite3/`), and the licences of the packages within. The
 * executable, the npm package and an installation are made of such a folder, so that none of them holds what the program does
 * not run.
 */
import { cpSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire, isBuiltin } from 'node:module';
import { dirname, join } from 'node:path';
import { build, type Metafile, type Plugin } from 'esbuild';
import { UNUSED, unused } from '../agent/runtime/docker/dockerode-parts.ts';
import { OPERATIONS_FILE } from '../api/schema/parameter-texts.ts';
import { compileScripts, makeScripts } from './program-scripts.ts';

const ROOT = join(import.meta.dirname, '..');
const ADDON = 'better-sqlite3';
const MODELS = '@kubernetes/client-node';

interface BundleOptions {
  /** Entry points by the names of their files: the command is `main`. */
  readonly entries: Readonly<Record<string, string>>;
  /** Names of prebuilt addons of better-sqlite3, such as `linux-x64`. */
  readonly addons: readonly string[];
  /** The oldest Node.js that runs it: `node24`. */
  readonly node: string;
  /** Whether the files are scripts with compiled forms for the Node.js of this process, instead of modules. */
  readonly compiled?: boolean;
}

/** Writes the bundle of the program to `folder`, which it replaces. */
export async function bundleProgram(
  folder: string,
  { entries, addons, node, compiled = false }: BundleOptions,
): Promise<void> {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const entryPoints = {
    ...entries,
    worker: join(ROOT, 'controlplane/storage/sqlite/worker.ts'),
    'yaml-worker': join(ROOT, 'api/codec/yaml-worker.ts'),
  };
  const { metafile } = await build({
    absWorkingDir: ROOT,
    entryPoints,
    outdir: folder,
    bundle: true,
    splitting: true,
    format: 'esm',
    platform: 'node',
    target: node,
    minifySyntax: true,
    minifyWhitespace: true,
    metafile: true,
    plugins: [withoutUnusedParts, addonBeside, namedExports],
    // CommonJS packages in the bundle load built-in modules with require. Scripts get it from their loader.
    banner: {
      js: compiled
        ? ''
        : "import { createRequire as __createRequire } from 'node:module';import { fileURLToPath as __path } from 'node:url';import { dirname as __dirnameOf } from 'node:path';const require = __createRequire(import.meta.url);const __filename = __path(import.meta.url);const __dirname = __dirnameOf(__filename);",
    },
    logLevel: 'warning',
  });
  for (const name of readdirSync(folder)) {
    const file = join(folder, name);
    writeFileSync(file, inAscii(readFileSync(file, 'utf8')));
  }
  for (const name of ['table.json', 'resources.json']) cpSync(join(ROOT, 'api/schema', name), join(folder, name));
  writeFileSync(join(folder, 'package.json'), '{"type":"module"}\n');
  copyAddon(join(folder, ADDON), addons);
  copyModels(join(folder, 'models'));
  writeFileSync(join(folder, 'licenses.txt'), licencesOf([...packagesIn(metafile), ADDON, MODELS]));
  if (!compiled) return;
  await makeScripts(folder, { entries: Object.keys(entryPoints), node });
  compileScripts(folder);
}

/** Parts of dockerode that the program does not use, and that a checkout does not install either. */
const withoutUnusedParts: Plugin = {
  name: 'without-unused-parts',
  setup: ({ onLoad }) =>
    onLoad({ filter: new RegExp(`/(${UNUSED.map((file) => file.replaceAll('.', '\\.')).join('|')})$`) }, () => ({
      contents: `module.exports = ${unused.toString()}`,
      loader: 'js',
    })),
};

/**
 * Escapes the characters beyond ASCII that esbuild leaves, which are those of regular expressions and comments. A single one
 * would double the size of its file in memory.
 */
function inAscii(code: string): string {
  return code.replaceAll(/[^\0-\x7f]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

/** All files of the bundle stand in one folder, the addon's in a folder below it. */
const addonBeside: Plugin = {
  name: 'addon-beside',
  setup: ({ onResolve }) =>
    onResolve({ filter: new RegExp(`^${ADDON}$`) }, () => ({ path: `./${ADDON}/lib/index.js`, external: true })),
};

/**
 * A CommonJS package that is loaded on first use gets the named exports that Node.js finds in it. esbuild gives such an
 * `import()` the default export alone, so that `const { extract } = await import('tar-stream')` would be undefined in the
 * bundle and only there.
 */
const namedExports: Plugin = {
  name: 'named-exports',
  setup({ onResolve, onLoad }) {
    const namespace = 'named-exports';
    onResolve({ filter: /^[^./]/ }, async ({ path, kind }) => {
      if (kind !== 'dynamic-import' || isBuiltin(path)) return undefined;
      const names = Object.keys((await import(path)) as object);
      // Node.js adds this name to what it makes of a CommonJS module.
      return names.includes('module.exports') ? { path, namespace, pluginData: names } : undefined;
    });
    onLoad({ filter: /^/, namespace }, ({ path, pluginData }) => {
      const names = (pluginData as readonly string[]).filter((name) => /^[\w$]+$/.test(name) && name !== 'default');
      const contents = `const whole = require(${JSON.stringify(path)});\nexport default whole;\nexport const { ${names.join(', ')} } = whole;`;
      return { contents, resolveDir: ROOT };
    });
  },
};

function copyAddon(target: string, addons: readonly string[]): void {
  const source = join(ROOT, 'node_modules', ADDON);
  mkdirSync(join(target, 'prebuilds'), { recursive: true });
  // The files of the addon are CommonJS, unlike those around it.
  writeFileSync(join(target, 'package.json'), `${JSON.stringify({ name: ADDON, version: versionOf(ADDON) })}\n`);
  cpSync(join(source, 'lib'), join(target, 'lib'), { recursive: true });
  for (const name of addons)
    cpSync(join(source, 'prebuilds', `${name}.node`), join(target, 'prebuilds', `${name}.node`));
}

/** Copies the declarations of the client package, whose comments are the texts of OpenAPI and of `kubectl explain`. */
function copyModels(target: string): void {
  const source = join(dirname(createRequire(import.meta.url).resolve(MODELS)), 'gen/models');
  mkdirSync(target);
  for (const file of readdirSync(source).filter((name) => name.endsWith('.d.ts')))
    cpSync(join(source, file), join(target, file));
  cpSync(join(source, '../apis', OPERATIONS_FILE), join(target, OPERATIONS_FILE));
}

/** Returns the names of the packages whose files are in the bundle. */
function packagesIn({ inputs }: Metafile): string[] {
  const names = Object.keys(inputs).flatMap((file) => /^node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(file)?.[1] ?? []);
  return [...new Set(names)];
}

function versionOf(name: string): string {
  const { version } = JSON.parse(readFileSync(join(ROOT, 'node_modules', name, 'package.json'), 'utf8')) as {
    readonly version: string;
  };
  return version;
}

/** Returns the names, versions and licence texts of the packages. Their licences require these texts in every copy. */
function licencesOf(packages: readonly string[]): string {
  const texts = packages.toSorted().map((name) => {
    const folder = join(ROOT, 'node_modules', name);
    const files = readdirSync(folder).filter((file) => /^(licen[cs]e|notice)/i.test(file));
    return [`${name} ${versionOf(name)}`, ...files.map((file) => readFileSync(join(folder, file), 'utf8').trim())];
  });
  return texts.map((lines) => `${lines.join('\n\n')}\n`).join(`\n${'-'.repeat(80)}\n\n`);
}
