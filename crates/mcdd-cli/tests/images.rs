//! The commands on images.

mod help;

use std::fs;
use std::path::Path;
use std::process::Stdio;

use help::{Lab, stderr, stdout};
use mcdd::compute::Level;

/// An 8x8 image as BMP: horizontal bars for 0, vertical bars for 1, dots for 2.
fn bmp(kind: usize, shift: usize, color: [u8; 3]) -> Vec<u8> {
    let mut out = b"BM".to_vec();
    for v in [54u32 + 192, 0, 54, 40, 8, 8] {
        out.extend(v.to_le_bytes());
    }
    out.extend(1u16.to_le_bytes());
    out.extend(24u16.to_le_bytes());
    out.extend([0; 24]);
    for y in 0..8 {
        for x in 0..8 {
            let on = match kind {
                0 => (y + shift) % 4 < 2,
                1 => (x + shift) % 4 < 2,
                _ => (x + y + shift).is_multiple_of(3),
            };
            out.extend(if on { color } else { [0; 3] });
        }
    }
    out
}

fn folder(lab: &Lab, name: &str, kind: usize, count: usize) {
    fs::create_dir_all(lab.path(name)).unwrap();
    for i in 0..count {
        let color = [(60 + i * 37 % 190) as u8, (60 + i * 71 % 190) as u8, (60 + i * 13 % 190) as u8];
        fs::write(lab.path(&format!("{name}/{i:02}.bmp")), bmp(kind, i, color)).unwrap();
    }
}

fn folder_bytes(lab: &Lab, name: &str) -> Vec<Vec<u8>> {
    let mut files: Vec<_> = fs::read_dir(lab.path(name)).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    files.iter().map(|f| fs::read(f).unwrap()).collect()
}

/// Whether there is a checkpoint in the folder or below it.
fn checkpoint_below(folder: &Path) -> bool {
    fs::read_dir(folder).into_iter().flatten().flatten().any(|entry| {
        let path = entry.path();
        path.extension().is_some_and(|e| e == "checkpoint") || path.is_dir() && checkpoint_below(&path)
    })
}

#[test]
fn a_killed_study_resumes_from_its_last_epoch() {
    let lab = Lab::new();
    folder(&lab, "photos/across", 0, 30);
    folder(&lab, "photos/down", 1, 30);
    folder(&lab, "dots", 2, 12);
    let bench = |out: &'static str| {
        let what = ["bench", "images", "--id", "photos", "--ood", "dots", "--net", "resnet8", "--epochs", "40"];
        [&what[..], &["--methods", "deep-mcdd", "-o", out]].concat()
    };
    lab.ok(&bench("whole"));
    let mut command = lab.std_command(&bench("parts"));
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while !checkpoint_below(&lab.path("parts")) && child.try_wait().unwrap().is_none() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let out = lab.ok(&bench("parts"));
    assert!(!stderr(&out).contains("epoch 1 of 40"), "{}", stderr(&out));
    for name in ["table.md", "table.csv", "table.tex", "index.html"] {
        let [whole, parts] = ["whole", "parts"].map(|f| fs::read_to_string(lab.path(f).join(name)).unwrap());
        assert_eq!(whole, parts, "{name}");
    }
}

const TRAIN: [&str; 10] = ["train", "photos", "--net", "resnet8", "--epochs", "3", "--batch", "16", "--lr", "0.05"];

#[test]
fn every_level_of_instructions_gives_the_same_bytes() {
    let lab = Lab::new();
    folder(&lab, "photos/across", 0, 12);
    folder(&lab, "photos/down", 1, 12);
    for net in ["cnn32", "resnet20", "densenet40"] {
        let mut first = None;
        for level in Level::ALL {
            if !level.is_available() {
                eprintln!("skipped: this machine has no {}", level.name());
                continue;
            }
            let train = ["train", "photos", "--net", net, "--epochs", "1", "-o", "m.mcdd", "--quiet"];
            lab.command(&train).env("MCDD_SIMD", level.name()).assert().success();
            let predict = ["predict", "m.mcdd", "photos", "--quiet"];
            let out = lab.command(&predict).env("MCDD_SIMD", level.name()).output().unwrap();
            assert!(out.status.success());
            let both = (fs::read(lab.path("m.mcdd")).unwrap(), out.stdout);
            assert!(first.get_or_insert_with(|| both.clone()) == &both, "{net} at {level:?}");
        }
    }
}

#[test]
fn folders_are_trained_on_predicted_and_evaluated() {
    let lab = Lab::new();
    folder(&lab, "photos/across", 0, 30);
    folder(&lab, "photos/down", 1, 30);
    folder(&lab, "dots", 2, 12);
    let out = lab.ok(&[&TRAIN[..], &["-o", "m.mcdd"]].concat());
    assert!(stderr(&out).contains("60 images of 8x8x3, 2 classes"), "{}", stderr(&out));
    let tested =
        stdout(&lab.ok(&[&TRAIN[..], &["-o", "t.mcdd", "--test", "0.2", "--report", "t.html", "-q"]].concat()));
    assert!(tested.starts_with("in-distribution: test rows of photos (12 rows)\n  accuracy % "), "{tested}");
    assert!(std::fs::read_to_string(lab.path("t.html")).unwrap().contains("test rows of photos"));
    lab.fails(&["predict", "m.mcdd", "photos", "--keep", "all"], "--keep is for tables");
    let text = stdout(&lab.ok(&["predict", "m.mcdd", "photos", "dots/03.bmp"]));
    assert_eq!(text.lines().count(), 62, "{text}");
    assert!(text.starts_with("image,label,verdict,confidence,p_value\n"), "{text}");
    assert!(text.lines().last().unwrap().starts_with("dots/03.bmp,"), "{text}");
    lab.ok(&["predict", "m.mcdd", "dots", "--format", "parquet", "-o", "p.parquet"]);
    let text = stdout(&lab.ok(&["evaluate", "m.mcdd", "photos", "--ood", "dots", "--bootstrap", "0"]));
    assert!(
        text.contains("in-distribution: photos (60 rows)") && text.contains("out-of-distribution: dots (12"),
        "{text}"
    );
    let text = stdout(&lab.ok(&["inspect", "m.mcdd"]));
    assert!(text.contains("images       8x8x3") && text.contains("network      resnet8, 64 latent"), "{text}");
    // The same command gives the same model, with checkpoints too.
    lab.ok(&[&TRAIN[..], &["-o", "again.mcdd", "--checkpoint", "run", "-q", "--threads", "1"]].concat());
    assert!(fs::read(lab.path("m.mcdd")).unwrap() == fs::read(lab.path("again.mcdd")).unwrap());
    lab.ok(&["figure", "samples", "m.mcdd", "photos", "--rows", "3", "-o", "samples"]);
    assert!(fs::read_to_string(lab.path("samples.svg")).unwrap().contains("data:image/png"));
    // Where images are strange.
    let text = stdout(&lab.ok(&["explain", "m.mcdd", "dots", "--maps", "maps", "--features", "2"]));
    assert!(text.contains("image 4 (dots/03.bmp): ") && text.contains("gain: the mean rise"), "{text}");
    let maps: Vec<_> = fs::read_dir(lab.path("maps")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(maps.len() == 12 && maps.iter().any(|n| n == "00004-03.png"), "{maps:?}");
    let csv = stdout(&lab.ok(&["explain", "m.mcdd", "dots", "--row", "4", "--format", "csv"]));
    assert!(csv.starts_with("image,verdict,label,confidence,p_value,rank,x,y,width,height,gain\n"), "{csv}");
    assert!(csv.lines().skip(1).all(|l| l.starts_with("dots/03.bmp,")), "{csv}");
    let json = stdout(&lab.ok(&["explain", "m.mcdd", "dots", "--row", "4", "--format", "jsonl"]));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((json["map"]["rows"].as_u64(), json["image"].as_str()), (Some(8), Some("dots/03.bmp")));
    let photos = folder_bytes(&lab, "photos/across");
    lab.fails(&["explain", "m.mcdd", "photos", "--maps", "photos"], "overwrite");
    lab.fails(&["explain", "m.mcdd", "photos", "--maps", "photos/across"], "a folder of the images");
    assert_eq!(folder_bytes(&lab, "photos/across"), photos);
    lab.fails(&["predict", "m.mcdd", "no-such-folder"], "no such file");
    lab.write("t.csv", "a,b\n1,2\n");
    lab.fails(&["predict", "m.mcdd", "t.csv"], "t.csv");
}

#[test]
fn wrong_images_and_options_are_errors() {
    let lab = Lab::new();
    folder(&lab, "photos/across", 0, 12);
    folder(&lab, "photos/down", 1, 12);
    lab.fails(&["train", "photos", "--net", "resnet9"], "9 layers");
    lab.fails(&["train", "photos", "--net", "resnet8", "--hidden", "3"], "--hidden is for tables");
    lab.fails(&["train", "photos", "--net", "resnet8", "--method", "alad"], "images");
    lab.fails(&["train", "photos", "--net", "resnet8", "--detector", "knn:on=inputs"], "inputs");
    lab.fails(&["train", "photos", "--net", "resnet8", "--preset", "fast"], "no fast preset for resnet8");
    lab.fails(&["train", "photos", "--net", "cnn", "--preset", "paper"], "resnet34");
    lab.fails(&["train", "photos", "--net", "resnet8", "--init", "none.safetensors"], "none.safetensors");
    lab.fails(&["train", "photos/down/00.bmp"], "00.bmp");
    lab.fails(&["train", "photos", "--net", "mlp"], "the folder has no files");
    lab.fails(&["train", "photos", "--net", "mlp", "--augment", "off"], "--augment is for images");
    lab.fails(&["train", "photos", "--net", "mlp", "--image-size", "8x8"], "--image-size is for images");
    lab.fails(&["train", "photos", "--net", "resnet8", "--drop", "a"], "--drop is for tables");
    lab.fails(&["bench", "images", "--id", "photos", "--ood", "dots", "--net", "resnet8", "--methods", "best"], "best");
    lab.fails(
        &["bench", "images", "--id", "photos", "--ood", "dots", "--net", "resnet8", "--methods", "paper"],
        "for tables",
    );
    fs::write(lab.path("photos/down/bad.png"), b"no picture").unwrap();
    lab.fails(&TRAIN, "bad.png");
    let out = lab.ok(&[&TRAIN[..], &["--skip-bad", "-o", "m.mcdd"]].concat());
    let said = stderr(&out);
    assert!(
        said.contains("1 bad image skipped: photos/down/bad.png: it is not an image of a supported format"),
        "{said}"
    );
    assert!(said.contains("24 images"), "{said}");
    fs::remove_file(lab.path("photos/down/bad.png")).unwrap();
    fs::create_dir(lab.path("photos/empty")).unwrap();
    lab.fails(&TRAIN, "empty");
}

#[test]
fn image_sets_are_compared() {
    let lab = Lab::new();
    folder(&lab, "photos/across", 0, 30);
    folder(&lab, "photos/down", 1, 30);
    folder(&lab, "dots", 2, 12);
    let bench = ["bench", "images", "--id", "photos", "--ood", "dots,photos/down", "--net", "resnet8", "--epochs", "2"];
    let out = lab.ok(&[&bench[..], &["-o", "out"]].concat());
    let talk = stderr(&out);
    assert!(
        talk.contains("photos: 48 images to train with, 12 images to test with; resnet8")
            && talk.contains("6 of 6 cells"),
        "{talk}"
    );
    for name in ["table.md", "table.csv", "table.tex", "index.html"] {
        let text = fs::read_to_string(lab.path("out").join(name)).unwrap();
        assert!(text.contains("deep-mcdd") && text.contains("dots") && !text.contains("left out"), "{name}: {text}");
    }
    assert_eq!(fs::read_to_string(lab.path("out/results.jsonl")).unwrap().lines().count(), 7);
    assert_eq!(fs::read_dir(lab.path("out")).unwrap().count(), 6, "no checkpoints remain");
    // Finished cells are not repeated, and more can be added.
    let more = lab.ok(&[&bench[..], &["-o", "out", "--methods", "deep-mcdd:nu=0.01,softmax+msp"]].concat());
    assert!(stderr(&more).contains("2 of 4 cells are done"), "{}", stderr(&more));
    lab.fails(&["bench", "photos", "--id", "photos", "--net", "resnet8"], "bench images");
    lab.fails(&["bench", "images", "--id", "photos", "--net", "resnet8"], "--ood");
    lab.fails(&["bench", "images", "--id", "photos", "--ood", "photos/", "--net", "resnet8"], "both known and unknown");
    lab.fails(
        &["bench", "images", "--id", "cifar10", "--net", "resnet8", "--data", "none", "--ood", "dots"],
        "CIFAR-10",
    );
}

#[test]
fn images_have_settings_of_their_own() {
    let lab = Lab::new();
    folder(&lab, "photos/across", 0, 12);
    folder(&lab, "photos/down", 1, 12);
    let inspect = |more: &[&str]| {
        lab.ok(&[&TRAIN[..8], more, &["-q", "-o", "m.mcdd"]].concat());
        stdout(&lab.ok(&["inspect", "m.mcdd"]))
    };
    let text = inspect(&["--method", "deep-mcdd", "--step-at", "0.2,0.4", "--augment", "move", "--warmup", "0.1"]);
    for part in ["nu=0.1", "[0.2, 0.4]", "shifted by up to 4 pixels\n", "weight decay 0.0001", "first 0.1 of the run"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(inspect(&["--method", "deep-mcdd:nu=0.5"]).contains("nu=0.5"));
    // A bad image has a line of its own; an image next to the class folders can be predicted.
    fs::create_dir(lab.path("bad")).unwrap();
    fs::write(lab.path("bad/a.png"), b"no picture").unwrap();
    fs::write(lab.path("empty.png"), b"").unwrap();
    let out = lab.ok(&["predict", "m.mcdd", "bad", "empty.png", "--skip-bad"]);
    let lines = "image,label,verdict,confidence,p_value,error\n\
                 bad/a.png,,error,,,it is not an image of a supported format\n\
                 empty.png,,error,,,the file is empty\n";
    assert_eq!(stdout(&out), lines);
    assert!(stderr(&out).contains("a.png") && stderr(&out).contains("empty.png"), "{}", stderr(&out));
    // Among others it keeps its place.
    fs::copy(lab.path("photos/down/00.bmp"), lab.path("bad/b.bmp")).unwrap();
    fs::write(lab.path("bad/c.png"), b"").unwrap();
    let text = stdout(&lab.ok(&["predict", "m.mcdd", "bad", "--skip-bad", "--format", "jsonl"]));
    let rows: Vec<serde_json::Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let verdicts: Vec<bool> = rows.iter().map(|r| r["verdict"] == "error" && r["error"].is_string()).collect();
    assert_eq!(verdicts, [true, false, true], "{text}");
    lab.fails(&["predict", "m.mcdd", "bad"], "bad/a.png");
    fs::copy(lab.path("photos/down/00.bmp"), lab.path("photos/loose.bmp")).unwrap();
    assert_eq!(stdout(&lab.ok(&["predict", "m.mcdd", "photos", "-q"])).lines().count(), 26);
    lab.ok(&["figure", "samples", "m.mcdd", "photos/down", "--rows", "2", "-o", "samples"]);
    // The report names images by their files.
    let known =
        ["evaluate", "m.mcdd", "photos/down", "--label", "none", "--bootstrap", "0", "-q", "--report", "r.html"];
    lab.ok(&known);
    let page = fs::read_to_string(lab.path("r.html")).unwrap();
    assert!(page.contains("\"file\":\"photos/down/") && !page.contains("batch norm"), "no names");
}

/// Records in the format of CIFAR-10.
fn records(images: usize) -> Vec<u8> {
    (0..images)
        .flat_map(|i| std::iter::once((i % 2) as u8).chain((0..3072).map(move |p| (p * (i % 2 + 1) % 251) as u8)))
        .collect()
}

#[test]
fn a_published_folder_is_trained_on_and_tested_by_its_parts() {
    let lab = Lab::new();
    fs::create_dir(lab.path("c")).unwrap();
    fs::write(lab.path("c/data_batch_1.bin"), records(40)).unwrap();
    fs::write(lab.path("c/test_batch.bin"), records(10)).unwrap();
    let train = ["train", "c", "--net", "resnet8", "--epochs", "1", "--batch", "8", "-o", "m.mcdd"];
    assert!(stderr(&lab.ok(&train)).contains("40 images"));
    let out = lab.ok(&["predict", "m.mcdd", "c"]);
    assert_eq!(stdout(&out).lines().count(), 11);
    assert!(stderr(&out).contains("the test part was read"), "{}", stderr(&out));
    // A study in a file, from another folder.
    fs::create_dir(lab.path("sub")).unwrap();
    fs::rename(lab.path("c"), lab.path("sub/c")).unwrap();
    folder(&lab, "sub/dots", 2, 12);
    lab.write(
        "sub/s.toml",
        "data = \"images\"\nid = \"c\"\nood = \"dots\"\nnet = \"resnet8\"\nepochs = 1\nskip-bad = true\n",
    );
    let out = lab.ok(&["bench", "sub/s.toml", "--methods", "softmax+msp"]);
    assert!(stderr(&out).contains("1 of 1 cells"), "{}", stderr(&out));
}

/// An image over HTTP, as a file and as a tensor, is predicted as by the command.
#[test]
fn serve_reads_images() {
    let lab = Lab::new();
    folder(&lab, "photos/across", 0, 20);
    folder(&lab, "photos/down", 1, 20);
    lab.ok(&["train", "photos", "--net", "resnet8", "--epochs", "1", "-q", "-o", "m.mcdd"]);
    let (shift, color) = (3, [70, 150, 230]);
    let file = bmp(1, shift, color);
    fs::write(lab.path("one.bmp"), &file).unwrap();
    let predicted = stdout(&lab.ok(&["predict", "m.mcdd", "one.bmp", "-q", "--format", "jsonl"]));
    let confidence = predicted.split("\"confidence\":").nth(1).unwrap().split(',').next().unwrap();
    // A BMP begins with its last row, and a pixel with blue.
    let pixel = |x: usize| if (x + shift) % 4 < 2 { [color[2], color[1], color[0]] } else { [0; 3] };
    let data: Vec<u8> = (0..8).flat_map(|_| (0..8).flat_map(pixel)).collect();
    let tensor =
        format!("{{\"inputs\":[{{\"name\":\"image\",\"shape\":[1,8,8,3],\"datatype\":\"UINT8\",\"data\":{data:?}}}]}}");
    let (mut server, address) = lab.serve("m.mcdd");
    let sent = help::request(&address, "POST", "/predict", "image/bmp", &file);
    let inferred = help::request(&address, "POST", "/v2/models/m/infer", "application/json", tensor.as_bytes());
    let wrong = help::request(&address, "POST", "/predict", "image/png", b"\x89PNG no image");
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(sent.contains(&format!("\"confidence\":{confidence},")), "{sent}\n{predicted}");
    assert!(inferred.contains(&format!("\"data\":[{confidence}]")), "{inferred}\n{predicted}");
    assert!(wrong.starts_with("HTTP/1.1 400") && wrong.contains("{\"error\":\""), "{wrong}");
}
