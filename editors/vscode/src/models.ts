/** Model picker: lists each model with its memory and download size. */
import { ConfigurationTarget, QuickPickItem, window, workspace } from "vscode";
import type { Model, Models } from "./protocol";
import { Server } from "./server";

const AUTO: Choice = { label: "auto", name: "auto", description: "the largest model that suits this machine", detail: "" };

interface Choice extends QuickPickItem {
  name: string;
}

/** Let the user pick a model; it is written to the user's settings, and the server loads it. */
export async function selectModel(server: Server): Promise<void> {
  const reply = await server.request<Models>("speclsp/models", {});
  if (!reply) {
    void window.showInformationMessage("speclsp: the server does not run, so there is no list of models. Restart it from the menu.");
    return;
  }
  const choices = [AUTO, ...reply.models.map((model) => asChoice(model, model.name === reply.current))];
  const options = { title: "Select a model", matchOnDescription: true, matchOnDetail: true };
  const chosen = await window.showQuickPick(choices, options);
  if (chosen) await workspace.getConfiguration("speclsp").update("model", chosen.name, ConfigurationTarget.Global);
}

function asChoice(model: Model, current: boolean): Choice {
  const memory = `${size(model.memory_mib)} of memory`;
  const download = model.fetched ? "downloaded" : `${size(model.download_mib)} to download`;
  return {
    name: model.name,
    label: `${current ? "$(check) " : ""}${model.title || model.name}`,
    description: [memory, download, ...(model.fits ? [] : ["does not fit"])].join(", "),
    detail: [model.target, model.draft && `draft model ${model.draft}`, model.licence, model.why].filter(Boolean).join("; "),
  };
}

const size = (mib: number): string => (mib < 1024 ? `${mib} MiB` : `${(mib / 1024).toFixed(1)} GiB`);
