; One step of a diffusion model's U-Net: what of a noisy image is noise, at a time.
(require nn arrays convolutions training)
(config size 8  channels 8  groups 2)
(def wide (* 2 channels))
(weights (in-w [channels 1 3 3] {:init (normal 0.2)}) (time-w [wide 16] {:init (normal 0.1)}) (time-b [wide])
  (down-n [channels] {:init 1}) (down-b [channels]) (down-w [wide channels 3 3] {:init (normal 0.1)})
  (mid-n [wide] {:init 1}) (mid-b [wide]) (mid-w [wide wide 3 3] {:init (normal 0.1)})
  (up-n [(+ wide channels)] {:init 1}) (up-b [(+ wide channels)])
  (up-w [channels (+ wide channels) 3 3] {:init (normal 0.1)}) (out-w [1 channels 3 3] {:init (normal 0.1)}))

(defn active [x w b] (silu (group-norm-of-images x groups w b 1e-5)))
(defn noise-of [x t]
  (let [waves (tensor [b (dim t 0) k 16] (sin (* (at t b) (+ 1.0 (cast k f32)))))
        time (silu (linear waves time-w time-b))
        first-one (convolution x in-w {:padding 1})
        small (convolution (active first-one down-n down-b) down-w {:padding 1 :strides 2})
        told (tensor [b (dim x 0) i (quot size 2) j (quot size 2) c wide] (+ (at small b i j c) (at time b c)))
        mid (+ told (convolution (active told mid-n mid-b) mid-w {:padding 1}))
        large (resize-nearest (resize-nearest mid 1 size) 2 size)
        all (active (join [large first-one] 3) up-n up-b)]
    (convolution (convolution all up-w {:padding 1}) out-w {:padding 1})))

(entry fit [(images [batch size size 1] f32) (noise [batch size size 1] f32) (t [batch] f32)]
  (let [n (dim t 0)
        x (tensor [b n i size j size c 1]
            (+ (* (cos (at t b)) (at images b i j c)) (* (sin (at t b)) (at noise b i j c))))
        off (- (noise-of x t) noise)]
    {:loss (/ (sum (reshape (square off) [(* n size size)])) (* 1.0 n size size))}))
(training fit)
