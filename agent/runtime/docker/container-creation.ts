/**
 * Creates sandboxes and containers in the Docker Engine. Writes the resolver configuration of a sandbox, which its
 * containers mount, and reads the seccomp profiles of the host.
 */
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../../../api/machinery/clock.ts';
import { type ContainerConfig, RuntimeError, type SandboxConfig } from '../runtime.ts';
import type { ContainerId, SandboxId } from '../runtime-identity.ts';
import { containerCreateOptions, type EngineFacts, sandboxCreateOptions } from './container-options.ts';
import { type DockerClient, isCode, unlessGone } from './docker-client.ts';
import type { DockerImages } from './images.ts';
import type { ImageVolumes } from './image-volumes.ts';
import { containerLabels, dockerName, sandboxLabels } from './labels.ts';
import type { SandboxImage } from './sandbox-image.ts';

const SANDBOX_IMAGE_TIMEOUT_MS = 120_000;

interface ContainerCreationOptions {
  readonly client: DockerClient;
  readonly clock: Clock;
  /** The label value that identifies the containers of this agent. */
  readonly instance: string;
  readonly rootDirectory: string;
  readonly sandboxImage: SandboxImage;
  readonly images: Pick<DockerImages, 'emptiedLabels'>;
  readonly imageVolumes: ImageVolumes;
  readonly facts: () => EngineFacts;
}

/** Creates objects and owns their files on the host. Failures of the engine are `RuntimeError`s. */
export class ContainerCreation {
  readonly #options: ContainerCreationOptions;

  constructor(options: ContainerCreationOptions) {
    this.#options = options;
  }

  /**
   * Creates a sandbox and does not start it. Without a network it uses the host's. Builds or pulls the sandbox image if it is
   * missing.
   */
  async sandbox(config: SandboxConfig, { network }: { readonly network: string | undefined }): Promise<SandboxId> {
    const { instance, clock, sandboxImage, facts } = this.#options;
    const name = dockerName('POD', config.pod, config.pod.attempt, instance);
    const labels = sandboxLabels(instance, config, clock.now());
    const create = sandboxCreateOptions(config, { image: sandboxImage.reference, network, labels, name }, facts());
    const id = (await this.#create(create, name).catch(async (error: unknown) => {
      if (!isCode(error, 'image-not-found')) throw error;
      await sandboxImage.provide(AbortSignal.timeout(SANDBOX_IMAGE_TIMEOUT_MS));
      return this.#create(create, name);
    })) as SandboxId;
    return id;
  }

  /** Creates a container in a sandbox and does not start it. */
  async container(sandbox: SandboxId, sandboxConfig: SandboxConfig, config: ContainerConfig): Promise<ContainerId> {
    const { instance, clock, images, imageVolumes, facts } = this.#options;
    const name = dockerName(config.name, sandboxConfig.pod, config.attempt, instance);
    const origin = { instance, sandboxId: sandbox, sandbox: sandboxConfig, nowMs: clock.now() };
    const labels = { ...(await images.emptiedLabels(config.image)), ...containerLabels(config, origin) };
    const { seccomp } = config.security;
    const seccompProfile =
      seccomp.type === 'Localhost' ? await this.#seccompProfile(seccomp.localhost ?? '') : undefined;
    const resolvConf =
      sandboxConfig.dns === undefined ? undefined : await this.writeResolvConf(sandbox, sandboxConfig.dns);
    const mounts = await Promise.all(config.mounts.map((mount) => imageVolumes.bind(mount)));
    const create = containerCreateOptions(
      sandboxConfig,
      { ...config, mounts },
      { sandboxId: sandbox, labels, name, seccompProfile, resolvConf },
      facts(),
    );
    return (await this.#create(create, name)) as ContainerId;
  }

  async #create(create: Parameters<DockerClient['docker']['createContainer']>[0], name: string): Promise<string> {
    const attempt = (): Promise<string> =>
      this.#options.client.call(
        'create container',
        async () => (await this.#options.client.docker.createContainer(create)).id,
      );
    try {
      return await attempt();
    } catch (error) {
      if (!isCode(error, 'already-exists')) throw error;
      // An agent that exited between create and start left this container. No pod refers to it.
      await unlessGone(
        this.#options.client.call('remove container', () =>
          this.#options.client.docker.getContainer(name).remove({ force: true, v: true }),
        ),
      );
      return attempt();
    }
  }

  #directory(sandbox: SandboxId): string {
    return join(this.#options.rootDirectory, 'docker', sandbox);
  }

  /** Removes the files of a sandbox. */
  async removeFiles(sandbox: SandboxId): Promise<void> {
    await rm(this.#directory(sandbox), { recursive: true, force: true });
  }

  /** Writes the resolver configuration of a sandbox and returns its path. */
  async writeResolvConf(sandbox: SandboxId, dns: NonNullable<SandboxConfig['dns']>): Promise<string> {
    const path = join(this.#directory(sandbox), 'resolv.conf');
    const lines = [
      ...(dns.searches.length === 0 ? [] : [`search ${dns.searches.join(' ')}`]),
      ...dns.servers.map((server) => `nameserver ${server}`),
      ...(dns.options.length === 0 ? [] : [`options ${dns.options.join(' ')}`]),
    ];
    await mkdir(this.#directory(sandbox), { recursive: true, mode: 0o755 });
    await writeFile(path, `${lines.join('\n')}\n`, { mode: 0o644 });
    return path;
  }

  /**
   * Returns what the engine takes: Docker the contents of the profile, Podman its path. Throws `RuntimeError` `invalid` if the
   * profile cannot be read.
   */
  async #seccompProfile(path: string): Promise<string> {
    try {
      const contents = await readFile(path, 'utf8');
      return this.#options.facts().isPodman ? path : contents;
    } catch (error) {
      throw new RuntimeError('invalid', `cannot load seccomp profile "${path}": ${(error as Error).message}`, {
        cause: error,
      });
    }
  }
}
