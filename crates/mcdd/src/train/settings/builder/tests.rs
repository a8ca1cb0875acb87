//! The rules by which settings resolve.

use super::*;
use crate::detector::DetectorConfig;
use crate::detector::config::Odin;

fn builder() -> SettingsBuilder {
    Settings::builder()
}

fn net() -> NetName {
    NetName::parse("resnet8").unwrap()
}

fn resnet() -> Settings {
    Settings::for_images(net(), Preset::Best).unwrap()
}

fn head(text: &str) -> HeadConfig {
    HeadConfig::parse(text).unwrap()
}

fn detector(text: &str) -> Detect {
    Detect::parse(text).unwrap()
}

/// `base` with some fields changed.
fn changed(mut base: Settings, change: impl FnOnce(&mut Settings)) -> Settings {
    change(&mut base);
    base
}

#[test]
fn nothing_given_is_a_preset() {
    assert_eq!(builder().build().unwrap(), Settings::default());
    for preset in Preset::ALL {
        assert_eq!(builder().preset(preset).build().unwrap(), preset.settings());
    }
    let images = |b: SettingsBuilder, net| b.build_for(DataKind::Images(net));
    let cnn = NetName::parse("cnn").unwrap();
    assert_eq!(images(builder(), Some(net())).unwrap(), resnet());
    assert_eq!(images(builder().preset(Preset::Paper), Some(net())).unwrap(), resnet());
    for preset in [Preset::Best, Preset::Fast] {
        let settings = Settings::for_images(cnn, preset).unwrap();
        assert_eq!(images(builder().preset(preset), None).unwrap(), settings);
        assert_eq!(settings.changed(), [""; 0]);
    }
    assert_eq!(images(builder(), None).unwrap().preset, Preset::Best);
    let paper = images(builder().preset(Preset::Paper), None).unwrap();
    assert_eq!((paper.image.unwrap().net.to_string().as_str(), paper.head.name()), ("resnet34", "deep-mcdd"));
    assert!(images(builder().preset(Preset::Paper), Some(cnn)).is_err());
    assert!(images(builder().preset(Preset::Fast), Some(net())).is_err());
}

#[test]
fn settings_know_what_differs_from_their_preset() {
    let given = builder().preset(Preset::Fast).method("softmax").epochs(3).weight_decay(0.1).seed(7);
    assert_eq!(given.build().unwrap().changed(), ["detector", "epochs", "method", "steps", "weight_decay"]);
    assert_eq!(builder().seed(7).build().unwrap().changed(), [""; 0]);
}

#[test]
fn each_value_replaces_the_one_of_the_preset() {
    type Rule = (SettingsBuilder, fn(&mut Settings));
    let rules: [Rule; 21] = [
        (builder().nu(0.3), |s| s.head = head("deep-mcdd:nu=0.3")),
        (builder().sigma(Sigma::Learned), |s| s.head = head("deep-mcdd:sigma=learned")),
        (builder().detector("energy"), |s| s.detector = detector("energy")),
        (builder().hidden([3, 4]), |s| s.hidden = vec![3, 4]),
        (builder().latent(7), |s| s.latent = 7),
        (builder().batch_norm(false), |s| s.batch_norm = false),
        (builder().clip(3.0), |s| s.clip = Some(3.0)),
        (builder().clip(OrOff::Off), |s| s.clip = None),
        (builder().members(2), |s| s.members = 2),
        // Epochs lift the maximum of steps, unless it is given too.
        (builder().epochs(9), |s| (s.epochs, s.steps) = (9, None)),
        (builder().epochs(9).steps(5), |s| (s.epochs, s.steps) = (9, Some(5))),
        (builder().steps(OrOff::Off), |s| s.steps = None),
        (builder().batch(50).weight_decay(0.1), |s| (s.batch, s.weight_decay) = (50, 0.1)),
        (builder().optimizer(Optimizer::sgd()).momentum(0.5), |s| s.optimizer = Optimizer::Sgd { momentum: 0.5 }),
        (builder().optimizer(Optimizer::sgd()), |s| s.optimizer = Optimizer::Sgd { momentum: 0.9 }),
        (builder().schedule(Schedule::Constant), |s| s.schedule = Schedule::Constant),
        (builder().schedule(Schedule::steps()).step_at([0.2]), |s| {
            s.schedule = Schedule::Steps { at: vec![0.2], factor: 0.1 };
        }),
        (builder().schedule(Schedule::steps()).step_factor(0.5), |s| {
            s.schedule = Schedule::Steps { at: vec![0.5, 0.75], factor: 0.5 };
        }),
        (builder().select(Select::Best).patience(3), |s| (s.select, s.patience) = (Select::Best, Some(3))),
        (builder().calibration_fraction(0.2).tpr(0.9), |s| (s.calibration_fraction, s.tpr) = (Some(0.2), 0.9)),
        (builder().seed(4).lr(0.5), |s| (s.seed, s.lr) = (4, 0.5)),
    ];
    for (given, change) in rules {
        for preset in [Preset::Best, Preset::Fast] {
            let built = given.clone().preset(preset).build().unwrap();
            assert_eq!(built, changed(preset.settings(), change), "{given:?}");
        }
    }
}

#[test]
fn a_method_decides_the_detector_the_rate_and_the_clip() {
    let own = |method: &str| {
        changed(Preset::Best.settings(), |s| {
            (s.head, s.detector) = (head(method), Detect::default());
            if !method.starts_with("deep-mcdd") {
                (s.members, s.bins) = (5, None);
            }
        })
    };
    let low = |method: &str| changed(own(method), |s| (s.batch_norm, s.lr) = (false, 1e-3));
    let bare = |method: &str| changed(low(method), |s| s.clip = None);
    let rules = [
        (builder().method("softmax"), own("softmax")),
        (builder().method("deep-mcdd"), own("deep-mcdd")),
        (builder().method("deep-mcdd").nu(2.0), own("deep-mcdd:nu=2")),
        (builder().method("soft-mcdd").nu(0.1), own("soft-mcdd:nu=0.1")),
        (builder().method("softmax").detector("rmd"), changed(own("softmax"), |s| s.detector = detector("rmd"))),
        (builder().method("deep-svdd"), low("deep-svdd")),
        (builder().method("deep-svdd").nu(0.2).lr(0.01), changed(low("deep-svdd:nu=0.2"), |s| s.lr = 0.01)),
        (builder().method("deep-svdd").batch_norm(false), low("deep-svdd")),
        (builder().method("alad"), bare("alad")),
        (builder().method("gda"), bare("gda")),
        (builder().method("gda").clip(4.0), changed(bare("gda"), |s| s.clip = Some(4.0))),
    ];
    for (given, expected) in rules {
        assert_eq!(given.build().unwrap(), expected, "{given:?}");
    }
}

#[test]
fn images_have_defaults_of_their_own() {
    let image = |s: &mut Settings, change: fn(&mut super::super::ImageSettings)| s.image.as_mut().map(change);
    type Rule<'a> = (SettingsBuilder, Box<dyn Fn(&mut Settings) + 'a>);
    let rules: Vec<Rule> = vec![
        // Deep-MCDD's nu is 0.1 where none is given.
        (builder().method("deep-mcdd"), Box::new(|_| ())),
        (builder().method("deep-mcdd:sigma=learned"), Box::new(|s| s.head = head("deep-mcdd:nu=0.1:sigma=learned"))),
        (builder().method("deep-mcdd:nu=0.5"), Box::new(|s| s.head = head("deep-mcdd:nu=0.5"))),
        (builder().method("deep-mcdd:nu=0.5").nu(2.0), Box::new(|s| s.head = head("deep-mcdd:nu=2"))),
        (builder().method("softmax"), Box::new(|s| s.head = head("softmax"))),
        (builder().detector("knn"), Box::new(|s| s.detector = detector("knn"))),
        (
            builder().detector("odin:epsilon=0").method("softmax"),
            Box::new(|s| {
                s.head = head("softmax");
                s.detector.detector = DetectorConfig::from(Odin { epsilon: 0.0, ..Odin::default() });
            }),
        ),
        (
            builder().latent(5),
            Box::new(|s| {
                image(s, |i| i.latent = Some(5));
            }),
        ),
        (
            builder().augment(Augmentation::Off),
            Box::new(|s| {
                image(s, |i| i.augment = None);
            }),
        ),
        (
            builder().augment(Augmentation::Move),
            Box::new(|s| {
                image(s, |i| i.augment.iter_mut().for_each(|a| a.flip = false));
            }),
        ),
        (
            builder().warmup(0.1).freeze(true),
            Box::new(|s| {
                image(s, |i| (i.warmup, i.frozen) = (0.1, true));
            }),
        ),
        (builder().momentum(0.5), Box::new(|s| s.optimizer = Optimizer::Sgd { momentum: 0.5 })),
        (builder().optimizer(Optimizer::default()), Box::new(|s| s.optimizer = Optimizer::default())),
        (builder().step_at([0.2, 0.4]), Box::new(|s| s.schedule = Schedule::Steps { at: vec![0.2, 0.4], factor: 0.1 })),
        (builder().epochs(3), Box::new(|s| s.epochs = 3)),
    ];
    for (given, change) in rules {
        let built = given.build_for(DataKind::Images(Some(net()))).unwrap();
        assert_eq!(built, changed(resnet(), change), "{given:?}");
    }
    // With cnn it is smaller.
    let cnn = DataKind::Images(Some(NetName::parse("cnn32").unwrap()));
    for (given, expected) in [("deep-mcdd", "deep-mcdd:nu=0.03"), ("deep-mcdd:nu=0.1", "deep-mcdd:nu=0.1")] {
        assert_eq!(builder().method(given).build_for(cnn).unwrap().head, head(expected));
    }
}

#[test]
fn what_does_not_fit_is_an_error_that_names_the_setting() {
    let (table, images) = (DataKind::Table, DataKind::Images(Some(net())));
    for (given, kind, message, hint) in [
        (builder().hidden([3]), images, "`hidden` is for tables", "leave out `hidden`"),
        (builder().batch_norm(true), images, "`batch_norm` is for tables", "leave out"),
        (builder().clip(3.0), images, "`clip` is for tables", "leave out"),
        (builder().preset(Preset::Fast), images, "no fast preset for resnet8", "`net`"),
        (builder().augment(Augmentation::Off), table, "`augment` is for images", "`net`"),
        (builder().warmup(0.5), table, "`warmup` is for images", "`net`"),
        (builder().freeze(true), table, "`freeze` is for images", "`net`"),
        (builder().method("alad"), images, "alad is for tables", "`method`"),
        (builder().warmup(1.0), images, "`warmup` is 1", "fraction"),
        (builder().latent(0), images, "`latent` is 0", "1 to 65,536"),
        (builder().detector("knn:on=inputs"), images, "knn uses the inputs", "`detector`"),
        (builder().method("knn"), table, "knn is a detector, not a method", "`detector=knn`"),
        (builder().detector("softmax"), table, "softmax is a method, not a detector", "`method=softmax`"),
        (builder().method("softmx"), table, "softmx", "softmax"),
        (builder().nu(f64::NAN), table, "`nu` is NaN", "finite"),
        (builder().nu(-1.0), table, "nu", "nu"),
        (builder().method("softmax").nu(1.0), table, "softmax has no `nu`", "leave out `nu`"),
        (builder().method("soft-mcdd").sigma(Sigma::One), table, "soft-mcdd has no `sigma`", "`method`"),
        (builder().method("deep-svdd").batch_norm(true), table, "cannot have batch normalization", "`batch_norm`"),
        (builder().momentum(0.9), table, "Adam has no `momentum`", "`optimizer=sgd`"),
        (builder().optimizer(Optimizer::default()).momentum(0.9), images, "Adam has no", "leave out `momentum`"),
        (builder().step_at([0.5]), table, "has no steps", "`schedule=steps`"),
        (builder().schedule(Schedule::Cosine).step_factor(0.5), images, "has no steps", "`step_factor`"),
        (builder().lr(0.0), table, "`lr` is 0", "`lr` must be a number above 0"),
        (builder().batch(1), table, "too small for batch normalization", "`batch_norm`"),
    ] {
        let e = given.build_for(kind).unwrap_err();
        assert!(e.to_string().contains(message), "{given:?}: {e}");
        assert!(e.hint_text().unwrap().contains(hint), "{given:?}: {:?}", e.hint_text());
    }
}

#[test]
fn networks_by_name_and_values_that_can_be_off() {
    assert_eq!(DataKind::from_net(None, false).unwrap(), DataKind::Table);
    assert_eq!(DataKind::from_net(None, true).unwrap(), DataKind::Images(None));
    assert_eq!(DataKind::from_net(Some("mlp"), true).unwrap(), DataKind::Table);
    assert_eq!(DataKind::from_net(Some("resnet8"), false).unwrap(), DataKind::Images(Some(net())));
    assert!(DataKind::from_net(Some("resnet9"), true).is_err());
    assert_eq!("off".parse(), Ok(OrOff::<usize>::Off));
    assert_eq!("5".parse(), Ok(OrOff::Value(5usize)));
    assert!("five".parse::<OrOff<f64>>().is_err());
    let given = builder().maybe(Some(0.5), SettingsBuilder::lr).maybe(None::<f64>, SettingsBuilder::tpr);
    assert_eq!(given, builder().lr(0.5));
}
